"""Fetches a range of offsets of one partition as whole Fetch responses.

The next request is sent before the caller gets a response, so broker and network work while the caller decodes. At most
one request is in flight, so memory is bounded by two responses.

If the client has a rack, a leader may name a replica in that rack, which then serves the range (KIP-392). If that
replica fails, or has fewer records than the leader, the leader serves the rest of the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from kraft_protocol.client import requests as m
from kraft_protocol.client.blocking import BlockingConnection
from kraft_protocol.client.cluster import Cluster, RetryBudget
from kraft_protocol.client.errors import (
    GONE,
    OFFSET_OUT_OF_RANGE,
    RETRIABLE,
    BrokerError,
    ClientError,
    DataLossError,
)
from kraft_protocol.records.batch import AbortedTransaction, next_offset

FETCH_BYTES: Final = 8 * 1024 * 1024
MAX_WAIT_MS: Final = 500
_CONTINUES: Final = "(failOnDataLoss=false continues with the remaining records)"


class Chunk(NamedTuple):
    """Batches of a response; the last may be incomplete. Only records in [offset, end) belong to the chunk.

    `aborted`: the aborted transactions of the response; None if reading uncommitted.
    """

    records: memoryview
    offset: int
    end: int
    aborted: list[AbortedTransaction] | None


class Range(NamedTuple):
    """The offsets [start, end) of a partition; `topic_id`: the topic's id at planning time, or m.NO_ID.

    `epoch`: epoch of the leader that reported the end, -1 if unknown. A later leader's log must agree up to the end.
    """

    topic: str
    topic_id: bytes
    partition: int
    start: int
    end: int
    epoch: int = -1

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}, offsets {self.start} to {self.end}"


def fetch_range(
    cluster: Cluster,
    wanted: Range,
    *,
    committed: bool = False,
    max_bytes: int = FETCH_BYTES,
    fail_on_data_loss: bool = True,
    lost: Callable[[int, int, str], None] = lambda *_: None,
) -> Iterator[Chunk]:
    """Yield the chunks of `wanted` in order; a chunk's bytes may hold more than the range.

    Raises DataLossError if records of the range are lost (retention, an unclean election, a topic that was created
    again). Raises ClientError if no leader returns records for `Settings.retry_s`. Without `fail_on_data_loss` the
    remaining records are returned, and a topic or end of log that stays missing for that time counts as lost. `lost`
    receives the first offset, the end and the cause of each gap.
    """
    fetcher = _Fetcher(cluster, wanted, committed, max_bytes, None if fail_on_data_loss else lost)
    try:
        yield from fetcher.chunks()
    finally:
        fetcher.abandon()


class _NothingError(OSError):
    """The leader has no readable record at the offset."""


class _Fetcher:
    def __init__(
        self,
        cluster: Cluster,
        wanted: Range,
        committed: bool,
        max_bytes: int,
        lost: Callable[[int, int, str], None] | None,
    ) -> None:
        """`lost` is None if a lost record ends the read."""
        self._cluster, self._range, self._report = cluster, wanted, lost
        self._committed, self._max_bytes = committed, max_bytes
        self._at, self._until = wanted.start, wanted.end
        self._connection: BlockingConnection | None = None
        self._mended = False
        self._rack = cluster.settings.rack
        self._replica: int | None = None
        """The follower that serves the range; None: the leader."""

    def chunks(self) -> Iterator[Chunk]:
        budget = self._retry_budget()
        while self._at < self._until:
            begun = self._at
            try:
                answer = self._answer()
                if self._is_elsewhere(answer):
                    continue
                if answer.error == OFFSET_OUT_OF_RANGE:
                    self._lost()
                    continue
                if answer.error:
                    raise BrokerError(answer.error, str(self._range))
                self._at = max(begun, next_offset(answer.records))
                if self._at == begun:
                    raise _NothingError(f"nothing comes from offset {begun} on: {self._end_of_log(answer)}")
            except DataLossError as e:
                if self._report is None:
                    raise
                self._skip(self._until, str(e).removeprefix(f"{self._range}: "))
                return
            except (OSError, BrokerError) as e:
                if self._replica is not None:
                    self._back_to_leader()
                    continue
                if isinstance(e, BrokerError) and e.code not in RETRIABLE:
                    raise
                self.abandon()
                self._mended = False
                if self._is_given_up(budget, e):
                    return
                continue
            budget = self._retry_budget()
            if self._at < self._until:
                with suppress(OSError):  # the read of the answer fails, too, and handles it
                    self._send()
            yield Chunk(answer.records, begun, self._until, answer.aborted if self._committed else None)

    def _is_elsewhere(self, answer: m.FetchAnswer) -> bool:
        """Whether another replica must serve the next request."""
        if self._replica is None:
            if answer.error or answer.preferred < 0 or not self._rack:
                return False
            self._replica, self._connection = answer.preferred, None
            return True
        if not answer.error and next_offset(answer.records) > self._at:
            return False
        self._back_to_leader()
        return True

    def _back_to_leader(self) -> None:
        """Read the rest of the range from the leader: only its answers show which records are lost."""
        self.abandon()
        self._replica, self._rack = None, ""

    def abandon(self) -> None:
        """Drop the connection if it still waits for a response."""
        if self._connection is not None and self._connection.waiting:
            self._cluster.drop(self._connection)
        self._connection = None

    def _retry_budget(self) -> RetryBudget:
        return RetryBudget(str(self._range), self._cluster.settings.retry_s)

    def _is_given_up(self, budget: RetryBudget, error: OSError | BrokerError) -> bool:
        """Pause before a retry. When the time is up, missing records count as lost, and other errors are raised."""
        try:
            budget.failed(error)
        except ClientError:
            missing = error.code in GONE if isinstance(error, BrokerError) else isinstance(error, _NothingError)
            if self._report is None or not missing:
                raise
            self._skip(self._until, str(error))
            return True
        return False

    def _answer(self) -> m.FetchAnswer:
        if self._connection is None or not self._connection.waiting:
            self._send()
        assert self._connection is not None
        return m.read_fetch(self._connection.receive())

    def _send(self) -> None:
        if self._connection is None:
            if not self._mended:
                self._find_leader()
            leader = self._cluster.leader(self._range.topic, self._range.partition)
            self._connection = self._cluster.connection(leader if self._replica is None else self._replica)
        body = m.fetch(
            self._cluster.topic(self._range.topic).id,
            self._range.partition,
            self._at,
            self._max_bytes,
            epoch=self._cluster.epoch(self._range.topic, self._range.partition),
            max_wait_ms=MAX_WAIT_MS,
            committed=self._committed,
            rack=self._rack,
        )
        self._connection.send(body)

    def _find_leader(self) -> None:
        """Refresh the metadata. Raises DataLossError if the topic's id differs from the range's."""
        self._cluster.topics([self._range.topic])
        known = self._cluster.topic(self._range.topic).id
        if self._range.topic_id not in {m.NO_ID, known}:
            raise DataLossError(f"{self._range}: the topic has been deleted and another topic has its name now")
        key = (self._range.topic, self._range.partition)
        if 0 <= self._range.epoch != self._cluster.epoch(*key):
            self._check_epoch(key)
        self._mended = True

    def _check_epoch(self, key: tuple[str, int]) -> None:
        """Check that a newer leader's log has the range; if it was truncated, end the range there."""
        cut = self._cluster.find_truncations({key: (self._until, self._range.epoch)}).get(key)
        if cut is None:
            return
        cause = f"an unclean election has truncated the log at offset {cut}"
        if self._report is None:
            raise DataLossError(f"{self._range}: {cause} {_CONTINUES}")
        self._report(max(self._at, cut), self._until, cause)
        self._until = max(self._at, cut)
        if self._at >= cut:
            raise DataLossError(f"{self._range}: the remaining records have been read")

    def _lost(self) -> None:
        key = (self._range.topic, self._range.partition)
        start = self._cluster.offsets({key: m.EARLIEST})[key]
        end = self._cluster.offsets({key: m.LATEST})[key]
        cause = f"offset {self._at} is gone, the log has {start} to {end} now"
        if self._report is None:
            raise DataLossError(f"{self._range}: {cause} {_CONTINUES}")
        self._connection = None
        self._skip(start if start > self._at else self._until, cause)

    def _skip(self, to: int, cause: str) -> None:
        """Continue at the offset `to`, and report the records of the range before it as lost."""
        if self._report is not None and self._at < self._until:
            self._report(self._at, min(to, self._until), cause)
        self._at = to

    def _end_of_log(self, answer: m.FetchAnswer) -> str:
        name = "last stable offset" if self._committed else "high watermark"
        return f"the {name} is {answer.last_stable_offset if self._committed else answer.high_watermark}"
