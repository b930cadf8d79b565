"""The link between partitions and log directories: the directory of a partition's log, and unwanted logs.

`ReplicaManager` calls it (open, delete), and so does the broker (strays, configurations). A log is found by name. Its
topic id (KIP-516) shows whether it belongs to this topic or to an older topic with the same name. Only a log with the
requested id is ever deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Protocol

from kraft_node.base.turns import Turns
from kraft_node.log.checkpoints import partition_metadata
from kraft_node.metadata.partitions import NO_LEADER
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import DIRECTORY_LOST, RESERVED_DIRECTORY_IDS, ZERO_UUID, Uuid, uuid_text

if TYPE_CHECKING:
    from kraft_node.base.config.topic import TopicConfig
    from kraft_node.log.log import Log
    from kraft_node.log.manager.directory import Directory
    from kraft_node.log.manager.log_manager import LogManager
    from kraft_node.metadata.partitions import PartitionState
    from kraft_node.metadata.topics import TopicsView

log = logging.getLogger(__name__)


class Assign(Protocol):
    """Called if a log is not in the directory that the metadata names."""

    def __call__(self, topic_id: Uuid, index: int, directory: Uuid, *, returns: bool = False) -> None:
        """The log is in the directory with this id. `returns`: it counted as lost, and has all its records again."""


class Storage:
    """The broker's log directories, as partitions use them."""

    def __init__(
        self,
        logs: LogManager,
        node_id: int,
        topic_config: Callable[[str], TopicConfig],
        assign: Assign,
        knows_directories: Callable[[], bool],
    ) -> None:
        """`knows_directories`: whether the metadata.version has room for directories of replicas."""
        self._logs = logs
        self._knows_directories = knows_directories
        self._node_id = node_id
        self._topic_config = topic_config
        self._assign = assign
        self._lost: set[tuple[str, int]] = set()
        """Partitions with a log in a directory that has failed since the start."""
        self._quarantined: set[tuple[Uuid, int]] = set()
        """Replicas that are quarantined, until they have a log again."""
        self._restored: dict[tuple[Uuid, int], str] = {}
        """Replicas whose logs are whole again, until the controller counts on them: with the names of their topics."""
        self._doomed: dict[tuple[str, int], Uuid] = {}
        """Logs that later turns of the loop delete, with the ids of their topics."""
        self._turns = Turns(logs.env)
        logs.topic_config = topic_config

    def open(self, topic: str, index: int, topic_id: Uuid, state: PartitionState) -> Log:
        """The log of a partition with the topic's effective configuration. A missing log is created.

        A quarantined log is set aside once the controller counts only on other replicas, because the leader has its
        records. Raises KAFKA_STORAGE_ERROR if its directory has failed or the log is quarantined.
        """
        logs = self._logs
        doomed = self._doomed.pop((topic, index), None)
        if doomed is not None:
            self._delete(topic, index, doomed)  # an older log of this name that is not deleted yet
        wanted = state.directory(self._node_id)
        if logs.withdrawals.damage(topic, index) is not None and self._is_elsewhere(state):
            log.warning("replica is fetched again topic=%s partition=%d leader=%d", topic, index, state.leader)
            logs.set_aside(topic, index)
        found = logs.get(topic, index)
        if found is not None and found.topic_id != topic_id:
            stranger = _stranger(found)
            if stranger is not None:
                log.warning("log is set aside partition=%s-%d reason=%s", topic, index, stranger)
                logs.set_aside(topic, index)
                found = None
        if found is None and logs.futures.is_complete(topic, index, topic_id):
            found = logs.futures.promote(topic, index)
        if found is None:
            self._check_may_create(topic, index, topic_id, wanted, state)
            found = logs.create(topic, index, topic_id, self._topic_config(topic), directory_id=wanted)
        elif found.topic_id != topic_id:
            self._adopt(found, topic_id)
        else:
            found.topic_id = topic_id  # the object of the image, not a copy of each log's own
        self._report_directory(found, topic_id, index, wanted)
        return found

    def _is_elsewhere(self, state: PartitionState) -> bool:
        """Whether another broker leads, neither ISR nor ELR contains this replica, and the controller keeps it so.

        The leader may know this replica as caught up, and have it added to the ISR. Only the committed loss prevents
        this; before it, an empty log could be elected. Old metadata versions cannot express the loss.
        """
        me = self._node_id
        if self._knows_directories() and state.directory(me) != DIRECTORY_LOST:
            return False
        return state.leader not in (NO_LEADER, me) and me not in state.isr and me not in state.elr

    def _check_may_create(self, topic: str, index: int, topic_id: Uuid, wanted: Uuid, state: PartitionState) -> None:
        """An empty log must not replace a log in a failed directory: its records would be forgotten.

        Raises KAFKA_STORAGE_ERROR if this is possible. Either the metadata names a directory that is not online, or it
        names no directory, a directory has failed and the partition is not new. If all directories are online, the
        named directory has been replaced. Then the records of the in-sync replicas are fetched again, unless this
        broker is in sync.

        The metadata names the target of a move before the move is complete. So an incomplete copy shows that the log is
        in another directory.
        """
        online = self.directory_ids()
        assigned = _is_assigned(wanted)
        some_dead = len(online) < len(self._logs.directories)
        is_in_sync = self._node_id in state.isr or self._node_id in state.elr
        copy = self._logs.futures.directory_of(topic, index)
        if copy is not None and self._logs.futures.topic_id(topic, index) == topic_id and (some_dead or is_in_sync):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the log of {topic}-{index} is missing, and its copy in {copy.path} is not complete: the log's "
                "directory is not online",
            )
        if wanted in online or not (assigned or some_dead):
            return
        if not some_dead and not is_in_sync:
            return
        is_new = not assigned and state.partition_epoch == 0 and (topic, index) not in self._lost
        if not is_new:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the log directory of {topic}-{index} is not online ({uuid_text(wanted)})",
            )

    def quarantined(self, topic_id: Uuid, index: int) -> None:
        """Make the controller count on other replicas: report that this replica is in a lost directory."""
        self._quarantined.add((topic_id, index))
        self._assign(topic_id, index, DIRECTORY_LOST)

    def lost(self, partitions: Collection[tuple[str, int]], topics: TopicsView) -> None:
        """A directory has failed with the logs of these partitions.

        The controller knows failed directories, but may look for a replica elsewhere: in the target of its move, or
        nowhere. Then it would let this broker lead without the log. So the true directory is reported.
        """
        self._lost.update(partitions)
        for topic, index in partitions:
            view = topics.by_name(topic)
            state = None if view is None else view.partition(index)
            directory = self._logs.directory_of(topic, index)
            if view is None or state is None or directory is None or self._node_id not in state.replicas:
                continue
            actual = Uuid(directory.id)
            moves = self._logs.futures.directory_of(topic, index) is not None
            if actual != ZERO_UUID and (moves or state.directory(self._node_id) != actual):
                self._assign(view.id, index, actual)

    def _adopt(self, found: Log, topic_id: Uuid) -> None:
        """Give an empty log to the topic: a crash interrupted its creation."""
        try:
            partition_metadata.write(found.dir.env.disk, found.path, topic_id)
        except OSError as e:
            raise found.dir.fail(e) from e
        found.topic_id = topic_id

    def _report_directory(self, found: Log, topic_id: Uuid, index: int, wanted: Uuid) -> None:
        actual = Uuid(found.dir.id)
        key = (topic_id, index)
        was_lost = wanted == DIRECTORY_LOST or key in self._quarantined
        self._quarantined.discard(key)
        if self._logs.withdrawals.is_restored(found.topic, index):
            if was_lost:
                log.info("replica is whole again partition=%s-%d end_offset=%d", found.topic, index, found.end_offset)
                self._restored[key] = found.topic
                self._assign(topic_id, index, actual, returns=True)
                return
            self._logs.withdrawals.settle(found.topic, index)  # its loss was never committed
        if wanted == actual and not was_lost:
            return
        # A broker's only directory need not be reported unless the metadata names another directory or a failed
        # directory.
        if len(self._logs.directories) > 1 or _is_assigned(wanted) or was_lost:
            self._assign(topic_id, index, actual)

    def directory_accepted(self, topic_id: Uuid, index: int) -> None:
        """The controller has accepted the directory of a replica."""
        topic = self._restored.pop((topic_id, index), None)
        if topic is not None and (topic_id, index) not in self._quarantined:
            self._logs.withdrawals.settle(topic, index)

    def delete(self, topic: str, index: int, topic_id: Uuid) -> None:
        """Delete a partition's log soon, unless it belongs to another topic. Does nothing if the log is missing.

        Topics have thousands of partitions, so each log gets its own turn of the loop. If the node stops before this
        turn, the log is a stray at the next start. The same holds for a log in a failed directory.
        """
        if not self._logs.has(topic, index):
            return
        if not self._doomed:
            self._turns.add(self._delete_next)
        self._doomed[topic, index] = topic_id

    def _delete_next(self) -> bool:
        if self._doomed:  # the last log may have been deleted to make room for a new one of its name
            (topic, index), topic_id = next(iter(self._doomed.items()))
            del self._doomed[topic, index]
            self._delete(topic, index, topic_id)
        return bool(self._doomed)

    def _delete(self, topic: str, index: int, topic_id: Uuid) -> None:
        try:
            if self._logs.topic_id(topic, index) == topic_id:
                self._logs.delete(topic, index)
        except KafkaError as e:
            log.warning("log was not deleted partition=%s-%d error=%s", topic, index, e)

    def topics_known(self) -> None:
        """The image holds the configurations of all topics."""
        self._logs.topics_known()

    def remove_strays(self, is_hosted: Callable[[str, int], bool]) -> None:
        """Set aside the logs of partitions that are not on this broker (deleted or moved while it was down).

        A log of an older topic with the name of a present topic is found when the log of the present topic is opened.
        Each stray gets its own turn of the loop.
        """
        strays = [key for key in self._logs.partitions() if not is_hosted(*key) and key not in self._doomed]

        def step() -> bool:
            topic, index = strays.pop()
            if not is_hosted(topic, index):  # it may have become one meanwhile
                try:
                    self._logs.set_aside(topic, index)
                except KafkaError as e:
                    log.warning("stray log was not set aside partition=%s-%d error=%s", topic, index, e)
            return bool(strays)

        if strays:
            strays.reverse()
            self._turns.add(step)

    def configure(self, topic: str) -> None:
        """The configuration of a topic has changed."""
        self._logs.configure(topic, self._topic_config(topic))

    # --- directories ---

    def directories(self) -> list[Directory]:
        """All log directories of the configuration, also those that are offline."""
        return self._logs.directories

    def directory_of(self, topic: str, index: int) -> Directory | None:
        """The directory of a partition's log; None without a log."""
        return self._logs.directory_of(topic, index)

    def sizes(self, directory: Directory) -> Iterator[tuple[str, int, int]]:
        """(topic, number, bytes) of the logs in a directory. Raises OSError."""
        return self._logs.sizes(directory)

    def directory_ids(self) -> list[Uuid]:
        """The ids of the online directories."""
        return [Uuid(directory.id) for directory in self._logs.directories if directory.online]

    def cordon(self, paths: Collection[str]) -> bool:
        """Create new logs in other directories than these. Returns whether this changes anything."""
        before = self.cordoned_directory_ids()
        for directory in self._logs.directories:
            directory.cordoned = directory.path in paths
        return self.cordoned_directory_ids() != before

    def cordoned_directory_ids(self) -> list[Uuid]:
        """The ids of the directories that get no new logs."""
        return [Uuid(directory.id) for directory in self._logs.directories if directory.cordoned]

    def offline_directory_ids(self) -> list[Uuid]:
        """The known ids of failed directories."""
        return [
            Uuid(directory.id)
            for directory in self._logs.directories
            if not directory.online and Uuid(directory.id) != ZERO_UUID
        ]


def _is_assigned(directory_id: Uuid) -> bool:
    """Whether the id names a directory, and is not a reserved id for a missing or lost directory (KIP-858)."""
    return int.from_bytes(directory_id, "big") >= RESERVED_DIRECTORY_IDS


def _stranger(found: Log) -> str | None:
    """Why a log without the topic's id does not belong to the topic; None for an empty log without an id.

    The first flush makes the id durable. A log without an id was never flushed, so its records were promised to no
    client. They may belong to this topic or to a deleted one of the same name. Kafka treats these logs as strays, too.
    """
    if found.topic_id not in (None, ZERO_UUID):
        return f"it belongs to an older topic of this name ({uuid_text(Uuid(found.topic_id))})"
    if found.end_offset > 0:
        return "it has no topic id, because a crash happened before its first flush"
    return None
