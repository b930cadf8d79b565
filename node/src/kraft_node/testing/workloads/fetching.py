"""Fetching: positions, requests by leader, fetch sessions (KIP-227), and the checks of every response."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kraft_node.testing.workloads.session import METADATA_VERSION, PAUSE_MS, ClusterSession
from kraft_protocol.buffers import Buffer
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import BatchHeader, check_batch, iter_records, whole_batches
from kraft_protocol.records.errors import BatchError
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker

FETCH_VERSION: Final = 12
SESSION_FULL: Final = 0
NO_SESSION: Final = -1

BEHIND_SHARE: Final = 0.2
"""The share of fetches that are followed by another request on the same connection."""

LEADER_GONE: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)  # fmt: skip


class _FetchSession:
    """A fetch session with one leader: the partitions that the leader knows."""

    def __init__(self) -> None:
        self.id = 0
        self.epoch = SESSION_FULL
        self.known: dict[tuple[str, int], tuple[int, int]] = {}
        """Offset and leader epoch by partition."""


class PartitionReader:
    """Positions in some partitions, advanced by fetches."""

    isolation_level = 0

    def __init__(self, session: ClusterSession, checker: Checker, *, sessions: bool) -> None:
        self.positions: dict[tuple[str, int], int] = {}
        self.high_watermarks: dict[tuple[str, int], int] = {}
        """The last high watermarks received in this assignment."""
        self.epochs: dict[tuple[str, int], int] = {}
        """The leader epoch of the last record read, which readers of transactions commit with its offset (KIP-320)."""
        self._session = session
        self._checker = checker
        self._sessions: dict[int, _FetchSession] | None = {} if sessions else None
        self._settled: dict[tuple[str, int], int] = {}

    def assign(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Set new partitions and positions."""
        self.positions = dict(positions)
        self._settled = dict(positions)
        self.high_watermarks = {}
        self.epochs = {}
        if self._sessions is not None:
            self._sessions.clear()

    def change(self, kept: Iterable[tuple[str, int]], added: Mapping[tuple[str, int], int]) -> None:
        """Give up all partitions but those `kept`, and add partitions at these positions."""
        stays = frozenset(kept)
        for of in (self.positions, self._settled, self.high_watermarks, self.epochs):
            for partition in [each for each in of if each not in stays]:
                del of[partition]
        self.positions.update(added)
        self._settled.update(added)

    def moved(self) -> dict[tuple[str, int], int]:
        """The positions that have changed since they were last `settled`."""
        return {partition: at for partition, at in self.positions.items() if at != self._settled.get(partition)}

    def settled(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Note that those positions are committed."""
        self._settled.update(positions)

    async def fetch(self, *, max_wait_ms: int, max_bytes: int = 1 << 20) -> None:
        """Fetch once from every leader."""
        by_leader: dict[int, dict[tuple[str, int], int]] = {}
        for topic, index in list(self.positions):
            await self._session.leader(topic, index)
        for partition, position in self.positions.items():
            # Leader and epoch are read together: a former leader must not get a request with a newer epoch.
            if partition in self._session.leaders:
                by_leader.setdefault(self._session.leaders[partition], {})[partition] = position
        if not by_leader:
            await self._session.sleep(PAUSE_MS)
        for leader, wanted in by_leader.items():
            await self._fetch_from(leader, wanted, max_wait_ms, max_bytes)

    async def _fetch_from(
        self, leader: int, wanted: Mapping[tuple[str, int], int], max_wait_ms: int, max_bytes: int
    ) -> None:
        own = None if self._sessions is None else self._sessions.setdefault(leader, _FetchSession())
        epochs = self._session.leader_epochs
        rows = {partition: (at, epochs.get(partition, -1)) for partition, at in wanted.items()}
        named = rows
        forgotten: list[tuple[str, int]] = []
        if own is not None and own.epoch != SESSION_FULL:
            named = {partition: row for partition, row in rows.items() if own.known.get(partition) != row}
            forgotten = [partition for partition in own.known if partition not in wanted]
        request = self._fetch_request(own, named, forgotten, max_wait_ms, max_bytes)
        asked_in = self._checker.now()
        asked = self._session.request(leader, ApiKey.FETCH, FETCH_VERSION, request)
        if self._session.world.rng.random() < BEHIND_SHARE:
            # This request can be answered at once while the fetch may wait; still, responses come in request order.
            self._session.request(leader, ApiKey.METADATA, METADATA_VERSION, m.MetadataRequest(topics=[]))
        answer = await asked
        if answer is None or answer.error_code:
            if self._sessions is not None:
                self._sessions.pop(leader, None)
            if answer is None:
                for partition in wanted:
                    self._session.forget_leader(*partition)
            else:
                self._session.expect(
                    answer.error_code, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                    what="fetch",
                )  # fmt: skip
            await self._session.sleep(PAUSE_MS)
            return
        if own is not None:
            if own.id and answer.session_id != own.id:
                self._session.expect(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, what="an incremental fetch without error")
            own.id, own.epoch = answer.session_id, own.epoch + 1 if answer.session_id else SESSION_FULL
            own.known = rows
        self._take_all(answer, {partition: epoch for partition, (_, epoch) in rows.items()}, asked_in, leader)

    def _fetch_request(
        self,
        own: _FetchSession | None,
        named: Mapping[tuple[str, int], tuple[int, int]],
        forgotten: list[tuple[str, int]],
        max_wait_ms: int,
        max_bytes: int,
    ) -> m.FetchRequest:
        """A request for `named` partitions, with their offsets and leader epochs."""
        return m.FetchRequest(
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=self.isolation_level,
            session_id=0 if own is None else own.id,
            session_epoch=NO_SESSION if own is None else own.epoch,
            topics=[
                m.FetchRequest.FetchTopic(
                    topic=topic,
                    partitions=[
                        m.FetchRequest.FetchPartition(
                            partition=index,
                            fetch_offset=at,
                            current_leader_epoch=epoch,
                            partition_max_bytes=max_bytes,
                        )
                    ],
                )
                for (topic, index), (at, epoch) in named.items()
            ],
            forgotten_topics_data=[
                m.FetchRequest.ForgottenTopic(topic=topic, partitions=[index]) for topic, index in forgotten
            ],
        )

    def _take_all(self, answer: Any, leader_epochs: Mapping[tuple[str, int], int], asked: int, leader: int) -> None:
        for topic in answer.responses:
            for data in topic.partitions:
                partition = (topic.topic, data.partition_index)
                if not data.error_code:
                    leader_epoch = leader_epochs[partition]  # the leader has compared it with its own
                    self._checker.high_watermark(
                        partition, data.high_watermark, self._session.name, asked, leader_epoch
                    )
                self._take(partition, data, asked, leader)

    def _take(self, partition: tuple[str, int], data: Any, asked: int, leader: int) -> None:
        session = self._session
        position = self.positions[partition]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.positions[partition] = self._begin_again(partition, position)
            self.epochs.pop(partition, None)
            return
        if data.error_code:
            session.expect(data.error_code, *LEADER_GONE, what=f"fetch of {partition}")
            session.forget_leader(*partition)
            return
        self.high_watermarks[partition] = data.high_watermark
        self._take_records(partition, data, asked, leader)

    def _begin_again(self, partition: tuple[str, int], position: int) -> int:
        """The next position after one that is out of range."""
        self._checker.out_of_range(partition, position, self._session.name)
        return 0

    def _take_records(self, partition: tuple[str, int], data: Any, asked: int, leader: int) -> None:
        session, checker = self._session, self._checker
        position = self.positions[partition]
        values: list[tuple[int, str]] = []
        for header in self._sound(partition, data.records or b"", leader):
            values += [
                (record.offset, (record.value or b"").decode().rstrip("."))
                for record in iter_records(data.records, header)
                if record.offset >= position
            ]
        if values:
            checker.read(partition, position, values, data.high_watermark, session.name, asked)
            self.positions[partition] = values[-1][0] + 1

    def _sound(self, partition: tuple[str, int], records: Buffer, leader: int) -> list[BatchHeader]:
        """The batches up to the first damaged one; only a rotten disk may serve a damaged batch."""
        found: list[BatchHeader] = []
        try:
            found.extend(_whole(records))
        except BatchError as e:
            if not self._checker.is_rotten(leader):
                self._checker.broken("rot", partition, f"{self._session.name} received from {leader}: {e}")
            self._session.forget_leader(*partition)
        return found


def _whole(records: Buffer) -> Iterator[BatchHeader]:
    """The batches that are not cut off at the end. Raises BatchError for bytes that are not a batch, or a damaged
    one."""
    whole = whole_batches(records, with_junk=True)
    position = 0
    while position < len(whole):
        header = check_batch(whole, position)
        yield header
        position += header.length
