"""Fetching from one leader, one request at a time (Kafka's ReplicaFetcherThread).

A request names the partitions that have changed since the last request; a response holds the partitions with news. The
cost of both therefore depends on the partitions with traffic, not on all followed partitions. A partition that fails
leaves the session and returns after its own pause. An unreachable leader is retried after a pause that doubles up to
`replica.fetch.backoff.ms`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base import rare
from kraft_node.base.turns import Turns
from kraft_node.broker.replication.out_of_range import Reposition
from kraft_node.broker.replication.taking import ROLLS_MAX, ROW_COST, STEP, next_part
from kraft_node.broker.replication.throttle import PAUSE_MS, ReplicationQuota
from kraft_node.broker.replication.truncation import before_first_fetch, cut, parting_offset
from kraft_node.log.errors import CutLater
from kraft_protocol.client.fetch_session import ClientFetchSession
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import FetchRequest

if TYPE_CHECKING:
    from kraft_node.base.config.dynamic import BrokerConfig
    from kraft_node.base.env import Env, Timer
    from kraft_node.broker.controller_link import Answer, ControllerLink
    from kraft_node.partition.partition import Partition
    from kraft_node.partition.table import PartitionKey

log = logging.getLogger(__name__)

PAUSE_FIRST_MS: Final = 20
"""The first pause after a failure: most failures are leaders with metadata a few milliseconds behind ours."""

_SESSION_GONE: Final = frozenset((ErrorCode.FETCH_SESSION_ID_NOT_FOUND,))
_SESSION_BROKEN: Final = frozenset(
    (
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
)


class Followed:
    """A followed partition in one leader epoch."""

    __slots__ = ("asked_offset", "asked_start", "key", "leader_epoch", "partition", "pause_ms", "paused")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: PartitionKey = (partition.topic_id, partition.index)
        self.leader_epoch = partition.leader_epoch
        self.asked_offset = -1
        self.asked_start = -1
        """The log start offset of the last request."""
        self.pause_ms = 0
        self.paused = False

    def row(self, max_bytes: int) -> Any:
        """The partition's row in a fetch request, from the end of the local log on."""
        own = self.partition.log
        self.asked_offset, self.asked_start = own.settled_end, own.start_offset
        return FetchRequest.FetchPartition(
            partition=self.partition.index,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=self.asked_offset,
            last_fetched_epoch=own.leader_epochs.latest_epoch,
            log_start_offset=self.asked_start,
            partition_max_bytes=max_bytes,
        )


class FetcherSettings:
    """`replica.fetch.*` and related keys, read once at the start: they are not dynamic in Kafka."""

    __slots__ = ("backoff_ms", "max_bytes", "min_bytes", "response_max_bytes", "timeout_ms", "wait_ms")

    def __init__(self, config: BrokerConfig) -> None:
        self.max_bytes = config.int("replica.fetch.max.bytes")
        self.min_bytes = config.int("replica.fetch.min.bytes")
        self.wait_ms = config.int("replica.fetch.wait.max.ms")
        self.response_max_bytes = config.int("replica.fetch.response.max.bytes")
        self.backoff_ms = config.int("replica.fetch.backoff.ms")
        self.timeout_ms = config.int("replica.socket.timeout.ms")


class Fetcher:
    """Follows partitions that `source` leads. `peer()` returns the link to it, or None if its address is unknown."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        source: int,
        settings: FetcherSettings,
        broker_epoch: Callable[[], int],
        peer: Callable[[], ControllerLink | None],
        quota: ReplicationQuota,
    ) -> None:
        self.source = source
        self.bytes_in = 0
        """Record bytes fetched."""
        self._env = env
        self._node_id = node_id
        self._settings = settings
        self._broker_epoch = broker_epoch
        self._peer = peer
        self._quota = quota
        self._followed: dict[PartitionKey, Followed] = {}
        self._changed: dict[PartitionKey, Followed] = {}
        """Partitions that the next request must name."""
        self._forgotten: set[PartitionKey] = set()
        self._session: ClientFetchSession[PartitionKey] = ClientFetchSession()
        self._under_way = False
        """Whether a request is sent, or its response being appended."""
        self._turns = Turns(env)
        self._taking: Iterator[None] = iter(())
        self._scheduled: Timer | None = None
        self._pause_ms = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._followed)

    # --- the followed partitions ---

    def add(self, partition: Partition) -> None:
        """Start to fetch a partition, or restart in another leader epoch. Raises KafkaError KAFKA_STORAGE_ERROR."""
        before_first_fetch(partition)
        followed = Followed(partition)
        self._followed[followed.key] = self._changed[followed.key] = followed
        self._awaits_disk(followed)
        self._soon()

    def remove(self, key: PartitionKey) -> None:
        """Stop fetching a partition; does nothing if it is not fetched."""
        self._followed.pop(key, None)
        self._leave_session(key)

    def _leave_session(self, key: PartitionKey) -> None:
        self._changed.pop(key, None)
        if key in self._session.known:
            self._forgotten.add(key)

    def close(self) -> None:
        """Send no more requests, and ignore the response to the current request."""
        self._closed = True
        if self._scheduled is not None:
            self._scheduled.cancel()

    # --- requests ---

    def _soon(self, delay_ms: int = 0) -> None:
        if self._under_way or self._scheduled is not None or self._closed:
            return
        self._scheduled = self._env.scheduler.call_later(delay_ms, self._send)

    def _send(self) -> None:
        self._scheduled = None
        if not self._session.known and all(followed.paused for followed in self._followed.values()):
            return
        peer = self._peer()
        if peer is None:
            self._unreachable("it is not known where it listens")
            return
        try:
            request = self._request()
            if not request.topics and not self._session.known:
                return
            self._under_way = True
            peer.send(request, None, self._answered, self._settings.timeout_ms)
        except Exception:
            self._under_way = False
            self._start_over()
            raise

    def _request(self) -> Any:
        settings, session = self._settings, self._session
        if session.is_full:
            named = [followed for followed in self._followed.values() if not followed.paused]
            forgotten: set[PartitionKey] = set()
            session.known = {followed.key for followed in named}
        else:
            named = list(self._changed.values())
            session.known.update(self._changed)
            forgotten = self._forgotten - self._changed.keys()
            session.known -= forgotten
        self._changed = {}
        self._forgotten = set()
        topics: dict[Any, list[Any]] = {}
        for followed in named:
            topics.setdefault(followed.key[0], []).append(followed.row(settings.max_bytes))
        return FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=self._node_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=settings.wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=1 if rare.takes("follower fetch small") else settings.response_max_bytes,
            session_id=session.id,
            session_epoch=session.epoch,
            topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=rows) for topic_id, rows in topics.items()],
            forgotten_topics_data=_forgotten_topics(forgotten),
        )

    # --- answers ---

    def _answered(self, answer: Answer) -> None:
        self._under_way = False
        if self._closed:
            return
        if isinstance(answer, KafkaError | OSError):
            self._session.restart()
            self._unreachable(str(answer))
            return
        if answer.error_code:
            self._refused(ErrorCode(answer.error_code))
            return
        self._pause_ms = 0
        self._taking = self._take_all(answer)
        self._under_way = True
        if self._take_some():
            self._turns.add(self._take_some)

    def _take_some(self) -> bool:
        """Append a part of the response; after the last part the next request follows."""
        if self._closed:
            return False
        try:
            next(self._taking)
        except StopIteration:
            self._under_way = False
            self._soon()
            return False
        except Exception:
            self._under_way = False
            self._start_over()
            raise
        return True

    def _take_all(self, answer: Any) -> Generator[None]:
        """Yields between steps."""
        self._session.answered(answer.session_id)
        left = STEP
        for topic in answer.responses:
            for row in topic.partitions:
                followed = self._followed.get((topic.topic_id, row.partition_index))
                if followed is None or not self._awaits(followed):
                    continue
                left -= ROW_COST
                if left <= 0:
                    yield
                    left = STEP
                left = yield from self._take(followed, row, left)

    def _awaits(self, followed: Followed) -> bool:
        """Whether rows for it count: those of partitions that were added, removed or changed since the request are
        stale."""
        key = followed.key
        return self._followed.get(key) is followed and not followed.paused and key not in self._changed

    def _start_over(self) -> None:
        """After an internal error, fetch all partitions again, so that no partition is left out."""
        self._session.restart()
        self._soon(PAUSE_FIRST_MS)

    def _refused(self, code: ErrorCode) -> None:
        if code in _SESSION_GONE:
            self._session.forgotten_by_leader()
            self._soon()
        elif code in _SESSION_BROKEN:
            self._session.restart()
            self._soon(PAUSE_FIRST_MS)
        else:
            self._session.restart()
            self._unreachable(code.name)

    def _unreachable(self, why: str) -> None:
        self._pause_ms = min(max(2 * self._pause_ms, PAUSE_FIRST_MS), self._settings.backoff_ms)
        log.debug("leader cannot be fetched from broker=%d error=%s", self.source, why)
        self._soon(self._pause_ms)

    def _take(self, followed: Followed, row: Any, left: int) -> Generator[None, None, int]:
        """Append the records of a row, in steps.

        `left`: the cost that the present step may still have. Returns what remains of it.
        """
        code = ErrorCode(row.error_code)
        partition = followed.partition
        try:
            if code == ErrorCode.NONE:
                return (yield from self._take_records(followed, row, left))
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._reposition(followed)
            else:
                log.debug(
                    "leader answers a fetch with an error partition=%s-%d broker=%d error=%s",
                    partition.topic,
                    partition.index,
                    self.source,
                    code.name,
                )
                self._pause(followed)
        except CutLater as later:
            self._pause(followed, is_short=later.is_soon)
        except KafkaError as error:
            log.warning(
                "partition cannot be followed partition=%s-%d error=%s", partition.topic, partition.index, error
            )
            self._pause(followed)
        return left

    def _take_records(self, followed: Followed, row: Any, left: int) -> Generator[None, None, int]:
        partition = followed.partition
        own = partition.log
        parted = row.diverging_epoch
        if parted is not None and parted.epoch >= 0:
            offset, is_common = parting_offset(partition, parted.epoch, parted.end_offset)
            cut(partition, offset)
            if is_common:
                partition.follow_leader(row.high_watermark, row.log_start_offset, 0)
        elif own.end_offset == followed.asked_offset:
            size = 0 if row.records is None else len(row.records)
            if size:
                if self._awaits_disk(followed):
                    return left  # fetched again later: the rest of the response must not block the loop either
                self.bytes_in += size
                self._quota.record(partition.topic, partition.index, size)
                left = yield from self._append_in_steps(followed, memoryview(row.records), left)
                if not self._awaits(followed):
                    return left
            partition.follow_leader(row.high_watermark, row.log_start_offset, size)
        followed.pause_ms = 0
        if own.end_offset != followed.asked_offset or own.start_offset != followed.asked_start or parted is not None:
            self._changed[followed.key] = followed
            if self._awaits_disk(followed):
                pass
            elif self._is_throttled(partition):
                followed.paused = True
                self._leave_session(followed.key)
                self._env.scheduler.call_later(PAUSE_MS, self._throttled, followed)
        return left

    def _append_in_steps(self, followed: Followed, records: memoryview, left: int) -> Generator[None, None, int]:
        """Append records while nothing else changes the partition. Returns the cost that the last step has left."""
        partition = followed.partition
        own, first = partition.log, records
        while True:
            part, cost = next_part(records, left)
            if left < min(cost, STEP):
                end = own.end_offset
                yield
                left = STEP
                if not self._awaits(followed) or partition.log is not own or own.end_offset != end:
                    return left
                part, cost = next_part(records, left)
            if not part and records is first:
                part = records  # without a whole batch: refused
            taken = _append(partition, part) if part else 0
            if not taken:
                return left
            left = left - cost if taken == len(part) else 0
            records = records[taken:]

    # --- pauses ---

    def _awaits_disk(self, followed: Followed) -> bool:
        """Pause a partition while its disk is behind, or while a flush for `flush.messages` is under way.

        A fetch reports to the leader which records are stored here, so it must wait for the flush.
        """
        own = followed.partition.log
        budget = own.dir.budget
        is_slow = budget.left <= 0 and budget.must_wait()
        if own.unsettled is None and not is_slow:
            return False
        followed.paused = True
        self._leave_session(followed.key)
        if own.unsettled is not None:
            own.when_settled(own.end_offset, lambda _code: self._throttled(followed))
        else:
            budget.wait(0, lambda: self._throttled(followed))
        return True

    def _is_throttled(self, partition: Partition) -> bool:
        return self._node_id not in partition.isr and self._quota.holds(partition.topic, partition.index)

    def _throttled(self, followed: Followed) -> None:
        """Resume a paused partition, unless the quota is still exceeded."""
        if self._is_throttled(followed.partition) and self._followed.get(followed.key) is followed:
            self._env.scheduler.call_later(PAUSE_MS, self._throttled, followed)
        else:
            self._resume(followed)

    def _pause(self, followed: Followed, *, is_short: bool = False) -> None:
        """Pause a partition; each further failure doubles the pause. `is_short`: until the next turn of the loop."""
        followed.paused = True
        followed.pause_ms = (
            0 if is_short else min(max(2 * followed.pause_ms, PAUSE_FIRST_MS), self._settings.backoff_ms)
        )
        self._leave_session(followed.key)
        self._env.scheduler.call_later(followed.pause_ms, self._resume, followed)

    def _is_followed(self, followed: Followed) -> bool:
        return self._followed.get(followed.key) is followed and not self._closed

    def _resume(self, followed: Followed) -> None:
        if self._is_followed(followed):
            followed.paused = False
            self._changed[followed.key] = followed
            self._soon()

    def _reposition(self, followed: Followed) -> None:
        peer = self._peer()
        if peer is None:
            self._pause(followed)
            return
        followed.paused = True
        self._leave_session(followed.key)

        def done(found: bool) -> None:
            if found:
                self._resume(followed)
            else:
                self._pause(followed)

        Reposition(self._node_id, followed.partition, peer, lambda: self._is_followed(followed), done)


def _append(partition: Partition, records: Any) -> int:
    """Append fetched records. Returns their size in bytes. Raises KafkaError.

    If the local log is empty, the first batch may begin before the requested offset: that happens if the leader's log
    starts within a batch. The local log then starts at the batch's first offset.
    """
    own = partition.log
    first = int.from_bytes(records[:8], "big")
    if own.end_offset == own.start_offset and first < own.end_offset:
        own.reset_to(first)
    return partition.append_fetched(records, ROLLS_MAX)


def _forgotten_topics(keys: set[PartitionKey]) -> list[Any]:
    topics: dict[Any, list[int]] = {}
    for topic_id, index in sorted(keys, key=str):
        topics.setdefault(topic_id, []).append(index)
    return [FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in topics.items()]


__all__ = ["Fetcher", "FetcherSettings", "Followed"]
