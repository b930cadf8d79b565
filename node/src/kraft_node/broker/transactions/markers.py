"""WriteTxnMarkers (27), versions 1 and 2: ends transactions in the partitions that this broker leads (KIP-98).

Transaction coordinators send it, and administrators, to abort a hanging transaction (KIP-664). Version 2 has the
transaction.version (KIP-1228). A marker is answered when it is replicated like a record with acks=all.

Markers of `__consumer_offsets` go through the group coordinator, which commits or drops the transaction's offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kraft_node.broker.coordinators.runtime.machine import TransactionalProducer
from kraft_node.broker.coordinators.transaction.seams import Marker
from kraft_node.broker.metadata_cache import CONSUMER_OFFSETS
from kraft_node.partition.acknowledged import appended, when_acknowledged
from kraft_node.partition.acks import ACKS_ALL
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.control import build_marker
from kraft_protocol.wire.messages import WriteTxnMarkersResponse as Response

if TYPE_CHECKING:
    from kraft_node.base.env import Env
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.coordinators.group.coordinator import GroupCoordinator
    from kraft_node.broker.metadata_cache import MetadataCache
    from kraft_node.broker.self_fencing import SelfFence
    from kraft_node.partition.manager import ReplicaManager
    from kraft_node.partition.partition import Partition

FIRST_VERSION_WITH_TRANSACTION_VERSION: Final = 2
WAITING_MAX: Final = 1_000
"""Requests that may wait for replication; further requests get a retriable error."""
_NOT_READY: Final = frozenset(
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
)
"""Errors of the group coordinator, which transaction coordinators do not know: they get NOT_LEADER_OR_FOLLOWER."""


class MarkersHandler:
    """Writes markers, and limits the requests that wait for replication."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        groups: GroupCoordinator,
        fence: SelfFence,
        timeout_ms: int,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._replicas = replicas
        self._metadata = metadata
        self._groups = groups
        self._fence = fence
        self._timeout_ms = timeout_ms
        self._waiting = 0

    def __call__(self, ctx: RequestContext, request: Any) -> Any:
        results: dict[int, dict[tuple[str, int], Any]] = {}
        answer = _Answer(results)
        is_full = self._waiting >= WAITING_MAX
        for asked in request.markers:
            rows = results.setdefault(asked.producer_id, {})
            version = asked.transaction_version if ctx.api_version >= FIRST_VERSION_WITH_TRANSACTION_VERSION else 0
            marker = Marker(
                asked.producer_id, asked.producer_epoch, asked.coordinator_epoch, asked.transaction_result, version
            )
            for topic in asked.topics:
                for index in topic.partition_indexes:
                    row = Response.WritableTxnMarkerPartitionResult(index, ErrorCode.REQUEST_TIMED_OUT)
                    rows[topic.name, index] = row
                    if not is_full:
                        self.write(topic.name, index, marker, answer.expect(row))
        if answer.is_complete:
            return answer.response()
        self._waiting += 1

        def finish() -> None:
            timer.cancel()
            self._waiting -= 1
            ctx.respond(answer.response())

        timer = self._env.scheduler.call_later(self._timeout_ms, answer.give_up)
        answer.when_complete(finish)
        return None

    def write(self, topic: str, index: int, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
        """Write a marker into a partition of this broker. `done` gets NONE once it is replicated, or an error.

        `done` may be called before this returns.
        """
        try:
            self._fence.check()
            partition = self._leader(topic, index)
            _check(partition, marker)
            if topic == CONSUMER_OFFSETS:
                self._end_offsets(index, marker, done)
                return
            now_ms = self._env.clock.wall_ms()
            batch = build_marker(
                commit=marker.is_commit,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                timestamp=now_ms,
            )
            info = partition.append(batch, ACKS_ALL, now_ms, internal=True)
        except KafkaError as error:
            done(error.code)
            return
        when_acknowledged(appended(partition, info.last_offset + 1), ACKS_ALL, done)

    def _leader(self, topic: str, index: int) -> Partition:
        """The partition, if this broker leads it. Raises KafkaError; a replica elsewhere is unknown, as in Kafka."""
        state = self._metadata.partition(topic, index)
        if state is None or self._node_id not in state.replicas:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index} is not on this broker")
        return self._replicas.leader(topic, index)

    def _end_offsets(self, index: int, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
        def ended(error: KafkaError | None) -> None:
            code = ErrorCode.NONE if error is None else error.code
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_READY else code)

        try:
            shard = self._groups.runtime.shard_at(index)
        except KafkaError as error:
            ended(error)
            return
        producer = TransactionalProducer(marker.producer_id, marker.producer_epoch)
        shard.end_transaction(producer, ended, commit=marker.is_commit, coordinator_epoch=marker.coordinator_epoch)


def _check(partition: Partition, marker: Marker) -> None:
    """Raise INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED for a marker that comes too late.

    UNKNOWN_SERVER_ERROR for a marker without a producer, as in Kafka. The log checks it again, without knowing the
    transaction.version.
    """
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"no producer: id {marker.producer_id}, epoch {marker.producer_epoch}"
        )
    producers = partition.log.known_producers
    if producers is not None:
        producers.check_marker(
            marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_version
        )


class _Answer:
    """The rows of one request. A row that nothing decides in time stays REQUEST_TIMED_OUT."""

    __slots__ = ("_done", "_numbers", "_results", "_undecided")

    def __init__(self, results: dict[int, dict[tuple[str, int], Any]]) -> None:
        """`results`: the rows by producer id and partition."""
        self._results = results
        self._undecided: set[int] = set()
        self._numbers = 0
        self._done: Callable[[], None] | None = None

    def expect(self, row: Any) -> Callable[[ErrorCode], None]:
        """What the row's marker calls when it is decided."""
        number = self._numbers
        self._numbers += 1
        self._undecided.add(number)

        def decided(code: ErrorCode) -> None:
            if number in self._undecided:  # otherwise it is too late
                row.error_code = code
                self._undecided.discard(number)
                self._look()

        return decided

    @property
    def is_complete(self) -> bool:
        """Whether all rows are decided."""
        return not self._undecided

    def when_complete(self, done: Callable[[], None]) -> None:
        """Call `done` once all rows are decided, or given up."""
        self._done = done

    def give_up(self) -> None:
        """End the waiting."""
        self._undecided.clear()
        self._look()

    def _look(self) -> None:
        if self._done is not None and not self._undecided:
            done, self._done = self._done, None
            done()

    def response(self) -> Any:
        """The response as far as it is known."""
        markers = []
        for producer_id, rows in self._results.items():
            topics: dict[str, list[Any]] = {}
            for (topic, _), row in rows.items():
                topics.setdefault(topic, []).append(row)
            found = [Response.WritableTxnMarkerTopicResult(name, of_topic) for name, of_topic in topics.items()]
            markers.append(Response.WritableTxnMarkerResult(producer_id, found))
        return Response(markers=markers)
