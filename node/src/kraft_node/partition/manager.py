"""All replicas of this broker, created on first use (Kafka's ReplicaManager without its requests).

The broker calls `apply` with committed metadata. Handlers and coordinators look up partitions by (name, number) or
(topic id, number) in a `PartitionTable`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from kraft_node.base.env import Env
from kraft_node.base.turns import Turns
from kraft_node.log.errors import is_shortage
from kraft_node.log.recovery.background import LogIsRecovering
from kraft_node.log.segments.files import SHORTAGE_PAUSE_MS
from kraft_node.metadata.partitions import NO_LEADER
from kraft_node.partition.partition import Partition
from kraft_node.partition.surroundings import Alone, Surroundings
from kraft_node.partition.table import PartitionKey, PartitionTable, TopicKey
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import DIRECTORY_LOST, Uuid, uuid_text

if TYPE_CHECKING:
    from kraft_node.log.log import Log
    from kraft_node.metadata.delta import MetadataDelta
    from kraft_node.metadata.image import MetadataImage
    from kraft_node.metadata.partitions import PartitionState, TopicView
    from kraft_node.metadata.topics import TopicChange

log = logging.getLogger(__name__)

OpenLog: TypeAlias = Callable[[str, int, Uuid, "PartitionState"], "Log"]
"""Opens or creates the log of (topic, number, topic id, state). Raises KAFKA_STORAGE_ERROR if it cannot."""
DeleteLog: TypeAlias = Callable[[str, int, Uuid], None]
"""Deletes the log of (topic, number) if it belongs to the topic id."""

OPEN_AGAIN_MS: Final = 20
"""When to retry a replica if its log cannot be created at the moment, because it waits for an fsync."""


class ReplicaManager:
    """The partitions that this broker leads or follows."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        image: MetadataImage,
        open_log: OpenLog,
        delete_log: DeleteLog,
        surroundings: Surroundings | None = None,
    ) -> None:
        self.env = env
        self.node_id = node_id
        self.image = image
        self._open_log = open_log
        self._delete_log = delete_log
        self.surroundings: Surroundings = surroundings or Alone()
        self.role_changed: Callable[[Partition], None] = lambda _partition: None
        """Called for every new partition, and for every partition with a changed committed state."""
        self.dropped: Callable[[Partition], None] = lambda _partition: None
        """Called for every removed partition, with or without its log."""
        self._active = False
        self._to_open: dict[tuple[Uuid, int], None] = {}
        self._is_opening = False
        self._turns = Turns(env)
        self._partitions = PartitionTable()

    def __len__(self) -> int:
        """The number of partitions created so far."""
        return len(self._partitions)

    def opened(self) -> Iterator[Partition]:
        """The partitions created so far."""
        return iter(self._partitions)

    # --- finding ---

    def leader(self, topic: TopicKey, index: int) -> Partition:
        """A partition that this broker leads.

        Raises UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        partition = self._partitions.get(topic, index)
        if partition is None:
            partition = self._make(topic, index)
        if not partition.is_leader:
            partition.check_leader()
        return partition

    def leader_in(self, key: PartitionKey, leader_epoch: int) -> Partition:
        """A partition that this broker leads, for a request with a leader epoch (-1: none).

        Raises like `leader`; FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH take precedence over NOT_LEADER_OR_FOLLOWER.
        """
        partition = self._partitions.get(*key)
        if partition is None:
            partition = self._make(*key)
        if leader_epoch not in (-1, partition.leader_epoch):
            partition.check_epoch(leader_epoch)
        if not partition.is_leader:
            partition.check_leader()
        return partition

    def hosted_in(self, key: PartitionKey, leader_epoch: int) -> Partition:
        """A partition that this broker leads or follows, for a request with a leader epoch (-1: none).

        Raises like `leader_in`, except for missing leadership.
        """
        partition = self._partitions.get(*key)
        if partition is None:
            partition = self._make(*key)
        if leader_epoch not in (-1, partition.leader_epoch):
            partition.check_epoch(leader_epoch)
        return partition

    def hosted(self, topic: TopicKey, index: int) -> Partition:
        """A partition that this broker leads or follows. Raises like `leader`, except for missing leadership."""
        partition = self._partitions.get(topic, index)
        return self._make(topic, index) if partition is None else partition

    def peek(self, key: PartitionKey) -> Partition | None:
        """The partition, if it was created already."""
        return self._partitions.get(*key)

    def topic(self, key: TopicKey) -> TopicView:
        """The topic in the image. Raises UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION."""
        topics = self.image.topics
        if isinstance(key, str):
            view = topics.by_name(key)
            if view is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown topic {key!r}")
            return view
        view = topics.by_id(Uuid(key))
        if view is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"unknown topic id {uuid_text(Uuid(key))}")
        return view

    def _make(self, key: TopicKey, index: int) -> Partition:
        topic = self.topic(key)
        state = topic.partition(index)
        if state is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} has {len(topic)} partitions, not {index}"
            )
        if self.node_id not in state.replicas:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.node_id} is not a replica of {topic.name}-{index}"
            )
        replica_log = self._open_log(topic.name, index, topic.id, state)
        partition = Partition(self.node_id, topic.name, topic.id, index, replica_log, self.surroundings, self._turns)
        self._partitions.add(partition)
        partition.follow(state)
        self.role_changed(partition)
        return partition

    # --- opening partitions without requests ---

    def activate(self) -> None:
        """From now on open partitions with other replicas: followers must fetch, and leaders must maintain their ISR.

        Call it once the image contains everything that was committed before this start. An older image could name a
        deleted topic, and the log of the present topic would count as a stray.
        """
        self._active = True
        for topic, index in self.image.topics.assigned_to(self.node_id):
            self._open_later(topic.id, index, topic.partition(index))

    def _open_later(self, topic_id: Uuid, index: int, state: PartitionState | None) -> None:
        if self._active and state is not None and (len(state.replicas) > 1 or self._may_return(state)):
            self._to_open[topic_id, index] = None
            if not self._is_opening:
                self._is_opening = True
                self._turns.add(self._open_next)

    def _may_return(self, state: PartitionState) -> bool:
        """Whether the only replica counts as lost: if its log is whole again, the controller must know."""
        return state.leader == NO_LEADER and state.directory(self.node_id) == DIRECTORY_LOST

    def _open_next(self) -> bool:
        key = next(iter(self._to_open))
        del self._to_open[key]  # with any outcome of this partition, the others get their turn
        try:
            if self._partitions.get(*key) is None:
                self._open(*key)
        except BaseException:
            self._is_opening = bool(self._to_open)
            if self._to_open:
                self._turns.add(self._open_next)
            raise
        self._is_opening = bool(self._to_open)
        return self._is_opening

    def _open(self, topic_id: Uuid, index: int) -> None:
        try:
            self._make(topic_id, index)
        except LogIsRecovering:
            return  # `recovered` follows
        except KafkaError as error:
            if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:  # the old log of this name is being deleted
                self.env.scheduler.call_later(OPEN_AGAIN_MS, self._open_again, topic_id, index)
            elif isinstance(error.__cause__, OSError) and is_shortage(error.__cause__):
                self.env.scheduler.call_later(SHORTAGE_PAUSE_MS, self._open_again, topic_id, index)
            else:
                log.warning("replica was not opened partition=%s-%d error=%s", uuid_text(topic_id), index, error)

    def recovered(self, topic: str, index: int) -> None:
        """Note that the recovery of a log has finished."""
        view = self.image.topics.by_name(topic)
        if view is not None:
            self._open_again(view.id, index)

    def _open_again(self, topic_id: Uuid, index: int) -> None:
        state = self.image.topics.partition(topic_id, index)
        if state is not None and self.node_id in state.replicas:
            self._open_later(topic_id, index, state)

    # --- committed metadata ---

    def apply(self, delta: MetadataDelta) -> None:
        """Apply committed metadata: drop deleted and moved partitions, and update partitions with new epochs.

        The cost is proportional to the changes. New partitions are created on first use, not here.
        """
        if delta.is_snapshot:
            self._compare_all()
            return
        for change in delta.topics.values():
            if change.deleted:
                for index in range(change.partition_count_before):
                    self._drop(change.name, change.id, index, delete=True)
        for change in delta.topics.values():
            if not change.deleted:
                self._changed(change)

    def _changed(self, change: TopicChange) -> None:
        topic = self.image.topics.by_id(change.id)
        if topic is None:
            return
        for index in change.partitions:
            partition = self._partitions.get(change.id, index)
            state = topic.partition(index)
            if state is None:
                continue
            if self.node_id not in state.replicas:
                if index < change.partition_count_before:
                    self._drop(change.name, change.id, index, delete=True)
            elif partition is not None:
                partition.follow(state)
                self.role_changed(partition)
            else:
                self._open_later(change.id, index, state)

    def _compare_all(self) -> None:
        for partition in list(self.opened()):
            state = self.image.topics.partition(partition.topic_id, partition.index)
            if state is None or self.node_id not in state.replicas:
                self._drop(partition.topic, partition.topic_id, partition.index, delete=True)
            else:
                partition.follow(state)
                self.role_changed(partition)
        if self._active:
            self.activate()

    def _drop(self, name: str, topic_id: Uuid, index: int, *, delete: bool) -> None:
        partition = self._partitions.remove(topic_id, index)
        if partition is not None:
            self.dropped(partition)
        if delete:
            self._delete_log(name, index, topic_id)
        if partition is not None:
            partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if delete else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def failed(self, directory_partitions: list[tuple[str, int]]) -> None:
        """A log directory failed: its partitions answer KAFKA_STORAGE_ERROR from now on (their log cannot be
        opened)."""
        for name, index in directory_partitions:
            partition = self._partitions.remove(name, index)
            if partition is not None:
                self.dropped(partition)
                partition.close(ErrorCode.KAFKA_STORAGE_ERROR)

    def withdrawn(self, name: str, index: int) -> Uuid | None:
        """Stop using the log of a partition. Returns its topic id; None if the partition is not on this broker.

        The log is opened again on the next use, if possible; at once if the partition has other replicas.
        """
        self.failed([(name, index)])
        topic = self.image.topics.by_name(name)
        state = None if topic is None else topic.partition(index)
        if topic is None or state is None or self.node_id not in state.replicas:
            return None
        self._open_later(topic.id, index, state)
        return topic.id
