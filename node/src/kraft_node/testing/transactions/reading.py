"""Reading of transactional records: fetches with either isolation level, and readers that work all the time.

- `GroupReader`  a member of a classic group that reads committed records and commits its offsets plainly
- `GrouplessReader`  reads all records, or the committed ones, without a group; sometimes again from the start
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_node.testing.transactions.ledger import Ledger, ReadSpan, Values
from kraft_node.testing.workloads.consumer import Consumer
from kraft_node.testing.workloads.fetching import PartitionReader
from kraft_node.testing.workloads.session import PAUSE_MS, ClusterSession
from kraft_protocol.records.batch import BatchHeader, iter_records
from kraft_protocol.records.control import ControlType, parse_control_key

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster

AGAIN_SHARE = 0.08
"""The share of a follower's rounds that begin at the start of the logs."""


class TransactionalFetcher(PartitionReader):
    """Fetches records of transactions; with `isolation_level` 1 only the committed ones."""

    ledger: Ledger
    """Set before the first fetch."""

    def __init__(self, session: ClusterSession, checker: Checker, *, sessions: bool) -> None:
        super().__init__(session, checker, sessions=sessions)
        session.refuses_older = True
        self.fresh: list[tuple[tuple[str, int], int, str]] = []
        """Partition, offset and value of records that nobody has taken yet."""
        self.is_behind = True
        """Whether the last fetch found records, or did not reach all leaders."""

    def _begin_again(self, partition: tuple[str, int], position: int) -> int:
        if position < self.ledger.starts.get(partition, 0):
            return self.ledger.starts[partition]
        return super()._begin_again(partition, position)

    def _take_records(self, partition: tuple[str, int], data: Any, asked: int, leader: int) -> None:  # noqa: ARG002
        position = self.positions[partition]
        headers = self._sound(partition, data.records or b"", leader)
        values: Values = []
        aborted = sorted(data.aborted_transactions or (), key=lambda txn: txn.first_offset)
        open_ids: set[int] = set()
        end, epoch = position, -1
        for header in headers:
            while aborted and aborted[0].first_offset <= header.last_offset:
                open_ids.add(aborted.pop(0).producer_id)
            if header.last_offset < position:
                continue
            end, epoch = header.last_offset + 1, header.partition_leader_epoch
            if header.is_control:
                if marker_of(data.records, header) is ControlType.ABORT:
                    open_ids.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in open_ids):
                values += [
                    (record.offset, (record.value or b"").decode())
                    for record in iter_records(data.records, header)
                    if record.offset >= position
                ]
        if end > position:
            self.is_behind = True
            committed = self.isolation_level == 1
            span = ReadSpan(self._session.name, committed, partition, position, end, values)
            self.ledger.read(span, data.last_stable_offset, data.high_watermark)
            self.positions[partition], self.epochs[partition] = end, epoch
            self.fresh += [(partition, offset, value) for offset, value in values]


class CommittedFetcher(TransactionalFetcher):
    """Fetches committed records."""

    isolation_level = 1


def marker_of(records: Any, header: BatchHeader) -> ControlType:
    """The type of a control batch."""
    record = next(iter(iter_records(records, header)), None)
    return ControlType.UNKNOWN if record is None else parse_control_key(record.key)  # compaction empties batches


class GroupReader(Consumer):
    """A member of a group that reads committed records."""

    fetcher = CommittedFetcher

    def __init__(
        self, cluster: SimCluster, ledger: Ledger, name: str, group: str, topics: dict[str, int], *, sessions: bool
    ) -> None:
        super().__init__(cluster, ledger.checker, name, group, topics, sessions=sessions)
        assert isinstance(self._fetcher, TransactionalFetcher)
        self._fetcher.ledger = ledger


class GrouplessReader:
    """Reads partitions without a group."""

    fetchers: tuple[type[TransactionalFetcher], type[TransactionalFetcher]] = (TransactionalFetcher, CommittedFetcher)
    """For all records, and for committed records."""

    def __init__(
        self, cluster: SimCluster, ledger: Ledger, name: str, partitions: list[tuple[str, int]], *, committed: bool
    ) -> None:
        self.session = ClusterSession(cluster, name)
        self.stopping = False
        self._partitions = partitions
        self._rng = cluster.world.rng
        self._fetcher = self.fetchers[committed](self.session, ledger.checker, sessions=self._rng.random() < 0.5)
        self._fetcher.ledger = ledger

    async def run(self) -> None:
        """Fetch all partitions until stopped, at times from offset 0 again; the ledger judges what it reads."""
        fetcher, rng = self._fetcher, self._rng
        fetcher.assign(dict.fromkeys(self._partitions, 0))
        while not self.stopping:
            if rng.random() < AGAIN_SHARE:
                fetcher.assign(dict.fromkeys(self._partitions, 0))
            await fetcher.fetch(max_wait_ms=rng.choice((0, 100, 500)), max_bytes=rng.choice((600, 1 << 20)))
            fetcher.fresh.clear()
            await self.session.sleep(PAUSE_MS + rng.random() * 200)
