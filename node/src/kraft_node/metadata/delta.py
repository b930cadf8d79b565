"""What a run of committed records changed in the image: keys, not copies, so that its cost is that of the change.

Made by `MetadataImage.take_delta`, given to the publishers (broker, controller) together with the image, which by then
holds the new state. For keyed sections the value before is kept too.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from kraft_node.base.ids import Uuid
from kraft_node.metadata.brokers import BrokerRegistration, ControllerRegistration
from kraft_node.metadata.kinds import SECTION_NAMES
from kraft_node.metadata.topics import TopicChange

Entity: TypeAlias = tuple[tuple[str, str | None], ...]
"""A client quota's entity: (type, name or None for the default) pairs, sorted by type."""


_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


class MetadataDelta:
    """Each mapping: what was created, changed or removed, to what was there before (None: nothing)."""

    features: Mapping[str, int | None]
    brokers: Mapping[int, BrokerRegistration | None]
    controllers: Mapping[int, ControllerRegistration | None]
    configs: Mapping[tuple[int, str], Mapping[str, str] | None]
    quotas: Mapping[Entity, Mapping[str, float] | None]
    producer_ids: Mapping[str, Any]
    acls: Mapping[Uuid, Any]
    scram: Mapping[tuple[int, str], Any]
    tokens: Mapping[str, Any]
    zk_migration: Mapping[str, Any]

    def __init__(self) -> None:
        self.last_offset = -1
        """Offset of the last record that is in the image now."""
        self.epoch = -1
        self.is_snapshot = False
        """True when the image was loaded anew: everything may have changed, and what is not in it is gone."""
        self.topics: Mapping[Uuid, TopicChange] = {}
        """By topic id; a name deleted and created again is two entries."""

    @property
    def is_empty(self) -> bool:
        """Nothing to do but to note the offset."""
        return not (self.is_snapshot or self.topics or any(getattr(self, name) for name in SECTION_NAMES))


for _name in SECTION_NAMES:
    # An instance has only what changed; most commits change one section or none.
    setattr(MetadataDelta, _name, _NOTHING)
