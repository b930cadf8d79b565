"""What a run of committed records changed in the image: keys, not copies, so that its cost is that of the change.

Made by `MetadataImage.take_delta`, given to the publishers (broker, controller) together with the image, which by then
holds the new state. For keyed sections the value before is kept too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from kraft_node.base.ids import Uuid
from kraft_node.metadata.brokers import BrokerRegistration, ControllerRegistration
from kraft_node.metadata.topics import TopicChange

Entity: TypeAlias = tuple[tuple[str, str | None], ...]
"""A client quota's entity: (type, name or None for the default) pairs, sorted by type."""


class MetadataDelta:
    """Each mapping: what was created, changed or removed, to what was there before (None: nothing)."""

    __slots__ = (
        "acls",
        "brokers",
        "configs",
        "controllers",
        "epoch",
        "features",
        "is_snapshot",
        "last_offset",
        "producer_ids",
        "quotas",
        "scram",
        "tokens",
        "topics",
        "zk_migration",
    )

    def __init__(self) -> None:
        self.last_offset = -1
        """Offset of the last record that is in the image now."""
        self.epoch = -1
        self.is_snapshot = False
        """True when the image was loaded anew: everything may have changed, and what is not in it is gone."""
        self.features: Mapping[str, int | None] = {}
        self.brokers: Mapping[int, BrokerRegistration | None] = {}
        self.controllers: Mapping[int, ControllerRegistration | None] = {}
        self.topics: Mapping[Uuid, TopicChange] = {}
        """By topic id; a name deleted and created again is two entries."""
        self.configs: Mapping[tuple[int, str], Mapping[str, str] | None] = {}
        self.quotas: Mapping[Entity, Mapping[str, float] | None] = {}
        self.producer_ids: Mapping[str, Any] = {}
        self.acls: Mapping[Uuid, Any] = {}
        self.scram: Mapping[tuple[int, str], Any] = {}
        self.tokens: Mapping[str, Any] = {}
        self.zk_migration: Mapping[str, Any] = {}

    @property
    def is_empty(self) -> bool:
        """Nothing to do but to note the offset."""
        return not self.is_snapshot and not any(
            (
                self.features,
                self.brokers,
                self.controllers,
                self.topics,
                self.configs,
                self.quotas,
                self.producer_ids,
                self.acls,
                self.scram,
                self.tokens,
                self.zk_migration,
            )
        )
