"""The changes of a run of committed records in the image: keys, not copies, so the cost is proportional to the change.

`MetadataImage.take_delta` creates it. The publishers (broker, controller) get it with the image, which already has the
new state. For keyed sections the previous value is stored, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from kraft_node.metadata.brokers import BrokerRegistration, ControllerRegistration
from kraft_node.metadata.client_quotas import Entity
from kraft_node.metadata.kinds import SECTION_NAMES
from kraft_node.metadata.topics import TopicChange
from kraft_protocol.ids import Uuid

_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


class MetadataDelta:
    """Each mapping: created, changed or removed keys -> the previous value (None: none)."""

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
        """Offset of the last record in the image."""
        self.epoch = -1
        self.is_snapshot = False
        """True if the image was loaded from a snapshot: everything may have changed, and missing objects are gone."""
        self.topics: Mapping[Uuid, TopicChange] = {}
        """By topic id; a name that was deleted and created again has two entries."""

    @property
    def is_empty(self) -> bool:
        """Whether only the offset has changed."""
        return not (self.is_snapshot or self.topics or any(getattr(self, name) for name in SECTION_NAMES))


for _name in SECTION_NAMES:
    # An instance has only the changed sections; most commits change one section or none.
    setattr(MetadataDelta, _name, _NOTHING)
