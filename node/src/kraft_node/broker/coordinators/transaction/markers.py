"""Brings transaction markers to the leaders of a transaction's partitions.

This broker writes the markers of its own partitions at once. Other brokers get WriteTxnMarkers, one request at a time.

A marker is kept until its partition has answered or is deleted. If a broker does not answer, its markers wait and are
sent again after a growing delay. If a partition has no live leader, or refuses its marker for now, only this ending
waits. Each attempt goes to the leader at that time. Each transactional id has at most one ending, so the number of
transactional ids bounds the memory.

A transaction holds the partitions that still lack a marker (`Transaction.without`). `done` of its ending is called
after the last marker. Endings end with their shard: a new coordinator sends all markers again, which partitions
ignore.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.calls import call_each
from kraft_node.broker.coordinators.transaction.seams import NO_LEADER, NO_PARTITION, Marker
from kraft_node.broker.coordinators.transaction.states import TopicPartition, Transaction, TransactionState
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import WriteTxnMarkersRequest

if TYPE_CHECKING:
    from kraft_node.base.env import Scheduler, Timer
    from kraft_node.broker.controller_link import Answer, ControllerLink
    from kraft_node.broker.coordinators.runtime.shard import RuntimeShard
    from kraft_node.broker.coordinators.transaction.seams import WriteMarker

log = logging.getLogger(__name__)

LANE: Final = -2
"""The connection to each broker that carries markers."""
RETRY_MS: Final = 20
RETRY_MAX_MS: Final = 1_000
"""Delays before another attempt double up to the maximum."""
PARTITIONS_MAX: Final = 5_000
"""Partitions in one request; further markers go into the next request."""
WRITTEN_AT_ONCE: Final = 20
"""Markers of one ending that this broker writes in the same turn, in less than a millisecond. A request to itself
carries the rest: it is handled in turns."""

DONE: Final = frozenset((ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION))
"""The partition has the marker, or cannot have records of the transaction."""
FENCED: Final = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED))
"""Another coordinator or a newer producer has taken over: no further marker of this transaction is sent."""


class Ending:
    """A transaction with a stored result, while its markers are being written."""

    __slots__ = (
        "client_version",
        "commit",
        "done",
        "epoch",
        "parked",
        "pause_ms",
        "producer_id",
        "shard",
        "stopped",
        "timer",
        "transaction",
    )

    def __init__(self, shard: RuntimeShard[Any], transaction: Transaction, done: Callable[[], None]) -> None:
        values = transaction.values
        self.shard = shard
        self.transaction = transaction
        self.producer_id = values.producer_id
        self.epoch = values.epoch
        self.commit = values.state is TransactionState.PREPARE_COMMIT
        self.client_version = values.client_version
        self.done = done
        self.stopped = False
        self.parked: set[TopicPartition] = set()
        """Partitions that are tried again when `timer` fires."""
        self.timer: Timer | None = None
        self.pause_ms = RETRY_MS

    def __repr__(self) -> str:
        result = "commit" if self.commit else "abort"
        return f"{result} of {self.transaction.name} (producer {self.producer_id}, epoch {self.epoch})"


class _Destination:
    """A broker: the markers that wait for it, and when they are sent."""

    __slots__ = ("busy", "pause_ms", "timer", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[Ending, set[TopicPartition]] = {}
        self.busy = False
        self.timer: Timer | None = None
        self.pause_ms = RETRY_MS


class MarkerSender:
    """The endings of all partitions of `__transaction_state` that this broker leads."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        leader: Callable[[str, int], int],
        peers: Callable[[int, int], ControllerLink | None],
        node_id: int,
        write_here: WriteMarker,
        timeout_ms: int,
    ) -> None:
        """`leader(topic, partition)`: the live leader, NO_LEADER or NO_PARTITION. `peers` as in `Broker`. `write_here`
        writes markers of the partitions that this broker, `node_id`, leads."""
        self._scheduler = scheduler
        self._node_id = node_id
        self._write_here = write_here
        self._leader = leader
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._destinations: defaultdict[int, _Destination] = defaultdict(_Destination)
        self._endings: dict[Ending, None] = {}
        self._closed = False

    # -- taking

    def add(self, ending: Ending) -> None:
        """Send the markers of the ending, then call its `done`; at once if it has no partitions."""
        if not self._closed:
            self._endings[ending] = None
            self._route(ending, ending.transaction.values.partitions)

    def drop(self, shard: RuntimeShard[Any]) -> None:
        """The shard ends: this broker no longer sends its markers."""
        for ending in [one for one in self._endings if one.shard is shard]:
            self._stop(ending)

    def close(self) -> None:
        """The broker stops."""
        self._closed = True
        for ending in list(self._endings):
            self._stop(ending)
        for destination in self._destinations.values():
            if destination.timer is not None:
                destination.timer.cancel()

    def _stop(self, ending: Ending) -> None:
        ending.stopped = True
        self._endings.pop(ending, None)
        if ending.timer is not None:
            ending.timer.cancel()
        for destination in self._destinations.values():
            destination.waiting.pop(ending, None)

    # -- routing

    def _route(self, ending: Ending, partitions: Iterable[TopicPartition]) -> None:
        """Queue the markers for the present leaders; drop the markers of deleted partitions.

        A partition of a transaction did exist before its record was written. So if the image of a coordinator, which
        contains its own election, lacks the partition, the partition was deleted.
        """
        if ending.stopped:
            return
        deleted: list[TopicPartition] = []
        without_leader: list[TopicPartition] = []
        here: list[TopicPartition] = []
        by_leader: defaultdict[int, set[TopicPartition]] = defaultdict(set)
        for one in sorted(partitions):  # the same order in each run
            leader = self._leader(*one)
            if leader == NO_PARTITION:
                deleted.append(one)
            elif leader == NO_LEADER:
                without_leader.append(one)
            elif leader == self._node_id and len(here) < WRITTEN_AT_ONCE:
                here.append(one)
            else:
                by_leader[leader].add(one)
        for leader, there in by_leader.items():
            self._destinations[leader].waiting.setdefault(ending, set()).update(there)
            self._expedite(leader)
        if without_leader:
            self._park(ending, without_leader)
        if deleted:
            log.info("markers are not needed ending=%r deleted=%s", ending, deleted)
        if deleted or not here:
            self._written(ending, deleted)
        if here:
            self._write(ending, here)

    def _write(self, ending: Ending, partitions: Iterable[TopicPartition]) -> None:
        """Write markers into partitions of this broker.

        A single replica commits a marker at once. Otherwise a follower's fetch commits it. During a fetch nothing may
        be appended, so the transaction continues in the next turn.
        """
        at_once = True

        def decided(one: TopicPartition, code: ErrorCode) -> None:
            if at_once:
                self._settle(ending, (one,), {one: code})
            else:
                self._scheduler.call_soon(self._settle, ending, (one,), {one: code})

        marker = Marker(ending.producer_id, ending.epoch, ending.shard.epoch, ending.commit, ending.client_version)
        for one in partitions:
            if ending.stopped:
                break
            self._write_here(*one, marker, partial(decided, one))
        at_once = False

    def _park(self, ending: Ending, partitions: Iterable[TopicPartition]) -> None:
        """Try these partitions again after a delay, which grows with every failure of the ending."""
        ending.parked.update(partitions)
        if ending.timer is None:
            pause_ms, ending.pause_ms = ending.pause_ms, min(RETRY_MAX_MS, 2 * ending.pause_ms)
            ending.timer = self._scheduler.call_later(pause_ms, self._unpark, ending)

    def _unpark(self, ending: Ending) -> None:
        ending.timer = None
        parked, ending.parked = ending.parked, set()
        self._route(ending, parked)

    def _written(self, ending: Ending, partitions: Iterable[TopicPartition]) -> None:
        """These partitions no longer need a marker; the last partitions complete the transaction."""
        ending.transaction.without(frozenset(partitions))
        if not ending.transaction.values.partitions:
            self._stop(ending)
            ending.done()

    # -- sending

    def _expedite(self, node_id: int) -> None:
        """Send the waiting markers to the broker at the end of this turn, so that transactions of one turn share a
        request."""
        destination = self._destinations[node_id]
        if destination.timer is None and not destination.busy:
            destination.timer = self._scheduler.call_soon(self._send, node_id)

    def _send(self, node_id: int) -> None:
        destination = self._destinations[node_id]
        destination.timer = None
        if destination.busy or self._closed:
            return
        batch: dict[Ending, set[TopicPartition]] = {}
        for ending, partitions in self._take(destination).items():
            here = {one for one in partitions if self._leader(*one) == node_id}
            if here:
                batch[ending] = here
            if len(here) < len(partitions):
                self._route(ending, partitions - here)
        link = self._peers(node_id, LANE) if batch else None
        if link is not None:
            destination.busy = True
            markers = [_marker(ending, partitions) for ending, partitions in batch.items()]
            sent = partial(self._answered, node_id, batch)
            link.send(WriteTxnMarkersRequest(markers=markers), None, sent, self._timeout_ms)
        elif batch:
            self._failed(node_id, batch, "its address is not known")
        elif destination.waiting:
            self._expedite(node_id)

    @staticmethod
    def _take(destination: _Destination) -> dict[Ending, set[TopicPartition]]:
        """The markers of one request: bounded, and each producer id once, because answers name only the id."""
        batch: dict[Ending, set[TopicPartition]] = {}
        ids: set[int] = set()
        size = 0
        for ending in list(destination.waiting):
            if size >= PARTITIONS_MAX:
                break
            if ending.producer_id not in ids:
                ids.add(ending.producer_id)
                batch[ending] = destination.waiting.pop(ending)
                size += len(batch[ending])
        return batch

    def _failed(self, node_id: int, batch: dict[Ending, set[TopicPartition]], reason: object) -> None:
        """The broker has not answered: try all of its markers again after a delay, which grows with every failure."""
        destination = self._destinations[node_id]
        level = logging.INFO if destination.pause_ms == RETRY_MS else logging.DEBUG
        log.log(level, "markers were not written broker=%d endings=%d error=%s", node_id, len(batch), reason)
        for ending, partitions in batch.items():
            if not ending.stopped:
                destination.waiting.setdefault(ending, set()).update(partitions)
        pause_ms, destination.pause_ms = destination.pause_ms, min(RETRY_MAX_MS, 2 * destination.pause_ms)
        if destination.waiting and destination.timer is None:
            destination.timer = self._scheduler.call_later(pause_ms, self._send, node_id)

    def _answered(self, node_id: int, batch: dict[Ending, set[TopicPartition]], answer: Answer) -> None:
        destination = self._destinations[node_id]
        destination.busy = False
        if self._closed:
            return
        if isinstance(answer, OSError | KafkaError):
            self._failed(node_id, batch, answer)
            return
        destination.pause_ms = RETRY_MS
        codes = {
            marker.producer_id: {
                (topic.name, row.partition_index): row.error_code for topic in marker.topics for row in topic.partitions
            }
            for marker in answer.markers
        }
        if destination.waiting:
            self._expedite(node_id)
        call_each(
            partial(self._settle, ending, partitions, codes.get(ending.producer_id, {}))
            for ending, partitions in batch.items()
        )

    def _settle(self, ending: Ending, partitions: Iterable[TopicPartition], codes: dict[TopicPartition, int]) -> None:
        """Apply the codes of some partitions to one ending."""
        if ending.stopped:
            return
        again: list[TopicPartition] = []
        written: list[TopicPartition] = []
        for one in partitions:
            code = codes.get(one)
            if code in DONE:
                written.append(one)
            elif code in FENCED:
                log.warning("markers are given up ending=%r partition=%s error=%s", ending, one, code)
                self._stop(ending)
                return
            else:
                again.append(one)
                log.debug("marker is sent again ending=%r partition=%s error=%s", ending, one, code)
        if again:
            self._park(ending, again)
        self._written(ending, written)

    # -- figures

    @property
    def without_leader(self) -> int:
        """Endings with markers that wait for a leader, or for a partition that refused them."""
        return sum(1 for ending in self._endings if ending.parked)


def _marker(ending: Ending, partitions: set[TopicPartition]) -> Any:
    by_topic = defaultdict(list)
    for topic, partition in sorted(partitions):
        by_topic[topic].append(partition)
    row = WriteTxnMarkersRequest.WritableTxnMarker
    return row(
        producer_id=ending.producer_id,
        producer_epoch=ending.epoch,
        transaction_result=ending.commit,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name, numbers) for name, numbers in by_topic.items()],
        coordinator_epoch=ending.shard.epoch,
        transaction_version=ending.client_version,
    )
