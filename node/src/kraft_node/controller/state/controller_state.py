"""The state that managers plan against: the metadata once all appended records are committed, and data derived from it.

One `ControllerState` per controller. Managers read it and return records. Only `apply`, which the core calls right
after an append, changes it. It holds no answers, no timers and no log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.config import NodeConfig, TopicConfig, TopicConfigs
from kraft_node.base.config.dynamic import BrokerConfig
from kraft_node.base.config.node import own_boolean
from kraft_node.base.config.resources import BROKER_RESOURCE, TOPIC_RESOURCE
from kraft_node.base.env import Clock, Rng
from kraft_node.controller.partitions.change import PartitionChange
from kraft_node.controller.partitions.placement import UsableBroker
from kraft_node.controller.partitions.topic_names import TopicNames
from kraft_node.controller.state.indexes import Indexes
from kraft_node.controller.state.partition_index import PartitionIndex
from kraft_node.controller.state.sessions import CLOSED_KEY, REPLACE_KEY, Sessions, closed_limits_of
from kraft_node.metadata.brokers import BrokerRegistration
from kraft_node.metadata.features import DIRECTORY_ASSIGNMENT_SUPPORTED, ELR_SUPPORTED, ELR_VERSION
from kraft_node.metadata.image import MetadataImage, MetadataView
from kraft_node.metadata.kinds import kind_of
from kraft_node.metadata.kinds.kind import TransactionMark
from kraft_node.metadata.kinds.zk_migration import MIGRATION
from kraft_node.metadata.overlay import Overlay
from kraft_node.metadata.partitions import PartitionState, TopicView
from kraft_node.security.entries import EntryIndex
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, ZERO_UUID, Uuid

if TYPE_CHECKING:
    from kraft_protocol.wire.stored import RegisterBrokerRecord

RECORDS_PER_USER_OPERATION_MAX: Final = 10_000
"""Maximum of records in one atomic operation of a user; more would stall all others (Kafka's MAX_RECORDS_PER_USER_OP).
"""


def check_operation_size(records: Sequence[Any]) -> None:
    """Raise POLICY_VIOLATION if a user's operation would write too many records at once."""
    if len(records) > RECORDS_PER_USER_OPERATION_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


class ControllerState:
    """The metadata that managers plan against."""

    __slots__ = (
        "clock",
        "cluster_id",
        "config",
        "config_generation",
        "indexes",
        "leaving",
        "node_id",
        "replaces_on_restart",
        "rng",
        "sessions",
        "static",
        "topic_configs",
        "view",
    )

    def __init__(self, image: MetadataImage, static: NodeConfig, cluster_id: str, clock: Clock, rng: Rng) -> None:
        self.view = Overlay(image)
        self.static = static
        self.node_id = static.node_id
        self.cluster_id = cluster_id
        self.clock = clock
        self.rng = rng
        self.config = BrokerConfig(static)
        self.topic_configs = TopicConfigs(self.config)
        self.config_generation = 0
        """Increases whenever the effective configuration changes, so that users of derived values can notice."""
        lease_ms = static.int("broker.session.timeout.ms")
        closed_text = static.texts.get(CLOSED_KEY, "")
        closed = closed_limits_of(closed_text, static.int("broker.heartbeat.interval.ms"), lease_ms)
        self.sessions = Sessions(lease_ms, closed)
        self.replaces_on_restart = own_boolean(static, REPLACE_KEY)
        """Whether a broker with its predecessor's directories replaces it before the predecessor's lease ends."""
        self.indexes = Indexes()
        self.leaving: Counter[int] = Counter()
        """How many long plans take each broker out of its ISRs, in turns. A leaving broker may neither lead nor join
        an ISR, although its registration changes only at the end. This is soft state."""

    # Life

    @property
    def index(self) -> PartitionIndex:
        """Partitions by broker; valid while this controller is active."""
        return self.indexes.index

    @property
    def entries(self) -> EntryIndex:
        """Access control entries by resource; valid while this controller is active."""
        return self.indexes.entries

    @property
    def names(self) -> TopicNames:
        """Topic names that could collide; valid while this controller is active."""
        return self.indexes.names

    def activate(self) -> None:
        """Leadership came: derive the data that only the active controller keeps. Unfenced brokers get a full lease."""
        if not self.indexes.is_followed:
            self.indexes.begin(self.view.base)
        self.indexes.finish(self.view.base)
        self.sessions.clear()
        now = self.clock.monotonic_ms()
        for broker in self.view.brokers.values():
            self.sessions.register(broker.id, broker.epoch, broker.fenced, None if broker.fenced else now)
        self.refresh_config()

    def deactivate(self) -> None:
        """Leadership is lost: drop uncommitted records and the data that only the active controller keeps."""
        lost = self.view.uncommitted()
        self.view.clear()
        self.indexes.take_back(lost, self.view.base)
        self.sessions.clear()

    def apply(self, first_offset: int, records: Sequence[Any]) -> None:
        """Apply records that are about to be appended from `first_offset` on.

        Raises the error of a record that does not fit; then no record has been applied.
        """
        view = self.view
        topics = view.topics
        follow = self.indexes.follow
        followed = []
        offset = first_offset
        if any(kind_of(record).mark is TransactionMark.ABORT for record in records):
            self._undo_open_transaction()
        try:
            for offset, record in enumerate(records, start=first_offset):
                follow(record, topics)
                view.apply(offset, (record,))
                hook = kind_of(record).appended
                if hook is not None:
                    followed.append((hook, record))
            for hook, record in followed:
                hook(self, record)
        except Exception:
            self._take_back(first_offset, records[: offset - first_offset + 1])
            raise

    def _undo_open_transaction(self) -> None:
        opened = self.view.opened
        if opened:
            self._take_back(opened[0][0], [record for _, record in opened])

    def _take_back(self, first_offset: int, records: Sequence[Any]) -> None:
        """Undo these records; at most the last record was replayed in part."""
        kept = self.view.take_back(first_offset)
        base = self.view.base
        self.indexes.take_back([*(record for _, record in kept), *records], base)
        self.indexes.finish(base)
        for offset, record in kept:
            self.indexes.follow(record, self.view.topics)
            self.view.apply(offset, (record,))
        self.refresh_config()

    # Called for each appended record, by its kind (`AppendFollower`)

    def broker_registered(self, record: RegisterBrokerRecord) -> None:
        """A registration counts as contact: the record was just appended, not replayed."""
        now = self.clock.monotonic_ms()
        self.sessions.register(record.broker_id, record.broker_epoch, record.fenced, now)

    def broker_fenced(self, broker_id: int, *, fenced: bool) -> None:
        """Store the fencing or unfencing in the broker's lease. Fencing ends its controlled shutdown."""
        self.sessions.set_fenced(broker_id, fenced)

    def broker_unregistered(self, broker_id: int) -> None:
        """Forget the broker's lease."""
        self.sessions.remove(broker_id)

    def config_changed(self, resource_type: int, resource_name: str) -> None:
        """Refresh this node's own configuration if the record concerns it or all brokers."""
        if resource_type == BROKER_RESOURCE and resource_name in {"", str(self.node_id)}:
            self.refresh_config()

    def refresh_config(self) -> None:
        """The dynamic values of this node have changed."""
        if self.config.update(*_dynamic_values(self.view, self.node_id)):
            self.topic_configs.broker_changed()
            self.config_generation += 1

    def committed_config(self) -> BrokerConfig:
        """The node's effective configuration according to committed records. Clients see this image."""
        config = BrokerConfig(self.static)
        config.update(*_dynamic_values(self.view.base, self.node_id))
        return config

    # Features

    @property
    def level(self) -> int:
        """The metadata.version."""
        return self.view.metadata_level

    @property
    def elr_enabled(self) -> bool:
        """Whether eligible leader replicas are in use: the feature and the metadata.version allow them (KIP-966)."""
        return self.view.feature_level(ELR_VERSION) > 0 and self.level >= ELR_SUPPORTED

    # Brokers

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """The broker's registration, uncommitted records included; None if it is not registered."""
        return self.view.brokers.get(broker_id)

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker is registered, not fenced, and neither shutting down nor being fenced: then it may lead
        and join ISRs."""
        broker = self.view.brokers.get(broker_id)
        return broker is not None and broker.active and not self.leaving[broker_id]

    def check_epoch(self, broker_id: int, epoch: int) -> BrokerRegistration:
        """The broker's registration. Raises STALE_BROKER_EPOCH unless exactly this incarnation is registered."""
        broker = self.view.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
        if broker.epoch != epoch:
            message = f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}"
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, message)
        return broker

    def usable_brokers(self) -> Iterator[UsableBroker]:
        """The brokers that may get replicas: registered, with a directory that is not cordoned."""
        for broker in self.view.brokers.values():
            cordoned = broker.cordoned_directories
            if broker.directories and cordoned and set(broker.directories) <= set(cordoned):
                continue
            yield UsableBroker(broker.id, broker.rack, fenced=not self.is_active(broker.id))

    def default_directory(self, broker_id: int) -> Uuid:
        """The directory of a new replica on the broker: its only directory, or unassigned if it has several
        (KIP-858)."""
        broker = self.view.brokers.get(broker_id)
        if broker is None:
            return DIRECTORY_UNASSIGNED
        if not broker.directories:
            return DIRECTORY_MIGRATING
        return broker.directories[0] if len(broker.directories) == 1 else DIRECTORY_UNASSIGNED

    def may_have_records(self, state: PartitionState, broker_id: int) -> bool:
        """Whether the replica may still have its log: its broker has not registered without the log directory."""
        broker = self.view.brokers.get(broker_id)
        if broker is None or broker_id not in state.replicas:
            return False
        return broker.has_online_directory(state.directory(broker_id))

    def directories_for(self, assignments: Iterable[Iterable[int]]) -> dict[int, Uuid]:
        """`default_directory` of every broker in the assignments; empty if the metadata.version has no directories."""
        if self.level < DIRECTORY_ASSIGNMENT_SUPPORTED:
            return {}
        brokers = {broker_id for replicas in assignments for broker_id in replicas}
        return {broker_id: self.default_directory(broker_id) for broker_id in brokers}

    # Topics

    def topic_config(self, name: str) -> TopicConfig:
        """The effective configuration of a topic on this node."""
        return self.topic_configs.resolve(self.view.configs.get((TOPIC_RESOURCE, name)) or {})

    def topic_named(self, name: str) -> TopicView | None:
        """The topic, uncommitted records included; None if no topic has this name."""
        return self.view.topics.by_name(name)

    def topic_with(self, topic_id: Uuid) -> TopicView | None:
        """The topic, uncommitted records included; None if no topic has this id, always None for the zero id."""
        return None if topic_id == ZERO_UUID else self.view.topics.by_id(topic_id)

    def min_isr(self, topic: TopicView) -> int:
        """How many replicas must be in sync; never more than the topic has."""
        first = topic.partition(0)
        replicas = 1 if first is None else len(first.replicas)
        return min(self.topic_config(topic.name).min_insync_replicas, replicas)

    def change(
        self,
        topic: TopicView,
        number: int,
        state: PartitionState,
        acceptable: Callable[[int], bool] | None = None,
    ) -> PartitionChange:
        """A change of the partition, to be filled in. `acceptable` decides which brokers may lead; by default all
        active brokers.
        """
        brokers = self.view.brokers
        suits = acceptable or self.is_active

        def may_lead(broker_id: int) -> bool:
            if not suits(broker_id):
                return False
            broker = brokers.get(broker_id)
            if broker is None or broker_id not in state.replicas:
                return False
            return broker.has_online_directory(state.directory(broker_id))

        elr = self.elr_enabled
        return PartitionChange(
            topic.id,
            number,
            state,
            acceptable=may_lead,
            level=self.level,
            migrates=self.view.zk_migration_state == MIGRATION,
            elr_enabled=elr,
            min_isr=self.min_isr(topic) if elr else 1,
            directory_for=self.default_directory,
        )


def _dynamic_values(view: MetadataView, node_id: int) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The dynamic values of a node, and the dynamic defaults of all nodes."""
    configs = view.configs
    return configs.get((BROKER_RESOURCE, str(node_id))) or {}, configs.get((BROKER_RESOURCE, "")) or {}
