"""The parts of the cluster's metadata that records write: the common base of `MetadataImage` and `Overlay`.

The kinds of records (`kinds`) change a store through `get`, `put` and `remove` of its cells and of its topics. They
work in the same way on the committed image and on an overlay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.metadata.features import METADATA_VERSION, MINIMUM_METADATA_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kraft_node.metadata.brokers import BrokerRegistration, ControllerRegistration
    from kraft_node.metadata.client_quotas import Entity
    from kraft_node.metadata.sections import Cells
    from kraft_node.metadata.topics import TopicStore
    from kraft_protocol.ids import Uuid

PRODUCER_IDS: Final = "next"
"""The only key of `producer_ids`."""
ZK_MIGRATION: Final = "state"
"""The only key of `zk_migration`."""


class MetadataStore:
    """The keyed sections and the topics. `kinds.SECTION_NAMES` lists the sections; a store has each of them."""

    __slots__ = ()

    features: Cells[str, int]
    brokers: Cells[int, BrokerRegistration]
    controllers: Cells[int, ControllerRegistration]
    configs: Cells[tuple[int, str], Mapping[str, str]]
    quotas: Cells[Entity, Mapping[str, float]]
    producer_ids: Cells[str, Any]
    acls: Cells[Uuid, Any]
    scram: Cells[tuple[int, str], Any]
    tokens: Cells[str, Any]
    zk_migration: Cells[str, int]

    @property
    def topics(self) -> TopicStore:
        """The topics, for records to change."""
        raise AttributeError("topics")

    @property
    def metadata_level(self) -> int:
        """The finalized metadata.version; before it is finalized, the oldest version that 4.3.1 knows."""
        level = self.features.get(METADATA_VERSION)
        return MINIMUM_METADATA_VERSION if level is None else int(level)

    def feature_level(self, name: str) -> int:
        """The finalized level of a feature; 0 if it is not finalized."""
        return int(self.features.get(name) or 0)

    @property
    def next_producer_id(self) -> int:
        """The first producer id that no broker has got yet."""
        record = self.producer_ids.get(PRODUCER_IDS)
        return 0 if record is None else int(record.next_producer_id)

    @property
    def zk_migration_state(self) -> int:
        """0 NONE, 1 MIGRATION, 2 PRE_MIGRATION, 3 POST_MIGRATION."""
        return int(self.zk_migration.get(ZK_MIGRATION) or 0)
