"""Fetch sessions (KIP-227): partitions that a reader names once and need not repeat.

`SessionCache` finds, creates and evicts sessions; `FetchSession` also holds the partitions of one request without a
session. Nothing here reads a log.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from kraft_node.base import rare
from kraft_node.base.env import Rng
from kraft_node.broker.fetch.evictable import Evictable, Worth
from kraft_node.partition.table import PartitionKey
from kraft_protocol.client.fetch_session import INITIAL_EPOCH, NO_SESSION, next_epoch
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from kraft_node.base.turns import Turns
    from kraft_node.partition.partition import Partition

SESSION_IDLE_MS_MIN: Final = 120_000
"""A session that was used within this time is evicted only for a more valuable one (Kafka's
min.incremental...eviction.ms).
"""

ROWS: Final = 500
"""Partitions of one request that are handled at once, and in a step of a larger request: some milliseconds."""

PARTITIONS_MAX: Final = 2 << 20
"""Maximum of partitions of all sessions: half a kilobyte each. Above it, only followers get sessions."""

UNKNOWN: Final = -1

Judge: TypeAlias = "Callable[[FetchSession, Iterable[Any]], frozenset[Any]]"
"""The topics of the session (names or ids) that the client may not read."""


class Unfinished(Protocol):
    """A request of a session that is not answered yet."""

    def superseded(self) -> None:
        """Another request of the same session arrived: end without records."""


class FetchPartition:
    """A reader's request for one partition, and the last answer to it.

    Some tens of bytes: sessions hold thousands.
    """

    __slots__ = (
        "index",
        "key",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "offset",
        "owner",
        "sent_high_watermark",
        "sent_start_offset",
        "topic",
        "watched",
    )

    def __init__(self, key: PartitionKey, owner: FetchSession) -> None:
        self.key = key
        self.index = key[1]
        self.owner = owner
        self.offset = 0
        self.log_start_offset = UNKNOWN
        """The first offset that a follower has itself."""
        self.max_bytes = 0
        self.leader_epoch = UNKNOWN
        self.last_fetched_epoch = UNKNOWN
        self.sent_high_watermark = UNKNOWN
        self.sent_start_offset = UNKNOWN
        self.topic: str | None = None
        """The last known name of the topic: if the id no longer exists, a reader learns about the name."""
        self.watched: Partition | None = None

    def update(self, wanted: Any) -> None:
        """Apply a FetchRequest.FetchPartition.

        A follower with another leader epoch, or with the same offset as before, may have discarded the records that
        were sent meanwhile.
        """
        if wanted.current_leader_epoch != self.leader_epoch or wanted.fetch_offset == self.offset:
            self.sent_high_watermark = self.sent_start_offset = UNKNOWN
        self.offset = wanted.fetch_offset
        self.log_start_offset = wanted.log_start_offset
        self.max_bytes = wanted.partition_max_bytes
        self.leader_epoch = max(wanted.current_leader_epoch, UNKNOWN)
        self.last_fetched_epoch = max(wanted.last_fetched_epoch, UNKNOWN)

    def partition_changed(self, appended_bytes: int) -> None:
        """The partition has news (called by the watched partition)."""
        self.watched = None
        self.owner.changed(self, appended_bytes)

    def high_watermark_moved(self) -> None:
        """Send it with the next answer, without causing one (called by the watched partition)."""
        self.owner.ready[self.key] = self

    def watch(self, partition: Partition, isolation: int, missing_bytes: int = 1) -> None:
        """Have `partition` report its next news for this `isolation`, once. Ignored if watching or closed already.

        Appends of less than `missing_bytes` need not be reported.
        """
        if self.watched is None and not self.owner.is_closed:
            self.watched = partition
            partition.watch(self, isolation, missing_bytes)

    def look_again(self) -> None:
        """Read the partition again: it may have appends that were not reported."""
        self.unwatch()
        self.owner.ready[self.key] = self

    def unwatch(self) -> None:
        """Stop watching; allowed if nothing is watched."""
        if self.watched is not None:
            self.watched.unwatch(self)
            self.watched = None


class FetchSession:
    """The partitions of one reader. `id` is 0 while it is not kept for later requests."""

    __slots__ = (
        "arrived",
        "by_topic_id",
        "counted",
        "created_ms",
        "denied",
        "epoch",
        "id",
        "is_closed",
        "large",
        "partitions",
        "rack",
        "ready",
        "replica_epoch",
        "replica_id",
        "topics",
        "used_ms",
    )

    def __init__(self, *, by_topic_id: bool, replica_id: int = UNKNOWN) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.by_topic_id = by_topic_id
        """Whether its keys are topic ids (Fetch 13 and later), not names."""
        self.replica_id = replica_id
        """The broker id of a follower; negative for consumers."""
        self.rack: str | None = None
        """A consumer's rack; None: it does not name one and reads from leaders only (KIP-392)."""
        self.replica_epoch = UNKNOWN
        """The follower's broker epoch; -1 if unknown."""
        self.denied: frozenset[str | bytes] | None = None
        """The topics in `partitions` that the present request may not read; None: it may read all."""
        self.created_ms = 0
        self.used_ms = 0
        self.partitions: dict[PartitionKey, FetchPartition] = {}
        self.topics: dict[str | bytes, int] = {}
        """The number of partitions of each topic."""
        self.is_closed = False
        """Its partitions are no longer watched, even if one of its requests is still running."""
        self.counted = 0
        """The number of its partitions that `SessionCache` has counted."""
        self.ready: dict[PartitionKey, FetchPartition] = {}
        """Partitions that may have news, the longest waiting first."""
        self.arrived: Callable[[FetchPartition, int], None] | None = None
        """Called when a watched partition changes, while a request of this session waits."""
        self.large: Unfinished | None = None
        """The request that handles its partitions in turns."""

    @property
    def privileged(self) -> bool:
        """Whether it belongs to a follower: sessions of followers are preferred to sessions of consumers."""
        return self.replica_id >= 0

    @property
    def worth(self) -> Worth:
        """Its value among the sessions of the cache, by the partitions that were counted last."""
        return Worth(self.privileged, self.counted, self.id)

    def update(self, topics: Iterable[Any]) -> None:
        """Add or change the partitions that a FetchRequest names."""
        partitions = self.partitions
        for topic in topics:
            name = topic.topic_id if self.by_topic_id else topic.topic
            for wanted in topic.partitions:
                key = (name, wanted.partition)
                partition = partitions.get(key)
                if partition is None:
                    partition = partitions[key] = FetchPartition(key, self)
                    self.topics[name] = self.topics.get(name, 0) + 1
                partition.update(wanted)
                partition.unwatch()
                self.ready[key] = partition

    def forget(self, topics: Iterable[Any]) -> None:
        """Remove the partitions that a FetchRequest lists as forgotten."""
        for topic in topics:
            name = topic.topic_id if self.by_topic_id else topic.topic
            for index in topic.partitions:
                partition = self.partitions.pop((name, index), None)
                if partition is not None:
                    partition.unwatch()
                    self.ready.pop(partition.key, None)
                    self.topics[name] -= 1
                    if not self.topics[name]:
                        del self.topics[name]

    def changed(self, partition: FetchPartition, appended_bytes: int) -> None:
        """Put a partition with news into `ready`, and notify the waiting request of `appended_bytes`."""
        self.ready[partition.key] = partition
        if self.arrived is not None:
            self.arrived(partition, appended_bytes)

    def close(self, turns: Turns) -> None:
        """Stop watching; very many partitions are released in turns."""
        self.is_closed = True
        partitions, self.partitions, self.ready, self.topics = self.partitions, {}, {}, {}
        if len(partitions) <= ROWS:
            for partition in partitions.values():
                partition.unwatch()
        else:
            steps = _unwatched(partitions)
            turns.add(lambda: next(steps, False))


def _unwatched(partitions: dict[PartitionKey, FetchPartition]) -> Generator[bool, None, None]:
    while partitions:
        for _ in range(min(ROWS, len(partitions))):
            partitions.popitem()[1].unwatch()
        yield True


class SessionCache:
    """The sessions of a broker, at most `slots` of them (`max.incremental.fetch.session.cache.slots`)."""

    def __init__(self, slots: int, rng: Rng, turns: Turns) -> None:
        self.slots = slots
        self._turns = turns
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}
        """Least recently used first."""
        self._evictable = Evictable(SESSION_IDLE_MS_MIN)
        self.partition_count = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session: FetchSession) -> bool:
        return self._sessions.get(session.id) is session

    def count(self, session: FetchSession) -> bool:
        """Count the partitions of a session again. Returns whether the cache has room for them."""
        size = len(session.partitions)
        if size != session.counted:
            self.partition_count += size - session.counted
            session.counted = size
            if session in self:
                self._evictable.put(session.worth, session.created_ms)
        return self.partition_count <= PARTITIONS_MAX or session.privileged

    def resume(self, session_id: int, epoch: int, *, by_topic_id: bool, now_ms: int) -> FetchSession | ErrorCode:
        """The session of an incremental request, with its epoch increased; or the error code for the request."""
        session = self._sessions.get(session_id)
        if session is not None and rare.takes("session evicted"):
            self.close(session_id)
            session = None
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_topic_id != by_topic_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.epoch = next_epoch(epoch)
        session.used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def close(self, session_id: int) -> None:
        """Forget a session; allowed if it does not exist."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._evictable.remove(session_id)
            self.partition_count -= session.counted
            session.counted = 0
            session.close(self._turns)

    def keep(self, session: FetchSession, now_ms: int) -> bool:
        """Give `session` an id so that it can be resumed. Returns False without room for it."""
        if len(self._sessions) >= self.slots and not self._evict(session, now_ms):
            return False
        if not self.count(session):
            self.partition_count -= session.counted
            session.counted = 0
            return False
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._rng.randrange(2**31 - 1) + 1
        session.id = session_id
        session.epoch = next_epoch(INITIAL_EPOCH)
        session.created_ms = session.used_ms = now_ms
        self._sessions[session_id] = session
        self._evictable.put(session.worth, session.created_ms)
        return True

    def _evict(self, wanted: FetchSession, now_ms: int) -> bool:
        """Make room: evict an idle session, or the least valuable session that is old enough.

        A follower's session is more valuable than a consumer's, a larger session more than a smaller session.
        Followers need not wait until a consumer's session is old.
        """
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        victim = oldest.id
        if now_ms - oldest.used_ms <= SESSION_IDLE_MS_MIN:
            least = self._evictable.least(now_ms, for_follower=wanted.privileged)
            if least is None or least[:2] >= (wanted.privileged, len(wanted.partitions)):
                return False
            victim = least.session_id
        self.evictions += 1
        self.close(victim)
        return True


def topic_fields(key: PartitionKey) -> tuple[str, Uuid]:
    """The name and the id of the topic of `key` in a response: one of the two is empty."""
    topic = key[0]
    return (topic, ZERO_UUID) if isinstance(topic, str) else ("", Uuid(topic))
