"""Applications that copy exactly once: they read committed records, write each again, and commit their offsets in the
same transaction.

- `GroupCopier`  members of a classic group share the work (KIP-447): the group's generation fences a member
- `SoleCopier`   reads all partitions, without a member: its transactional id alone fences a former process
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kraft_node.testing.transactions.producer import Fenced, MustAbort, ProducerProcess
from kraft_node.testing.transactions.reading import CommittedFetcher
from kraft_node.testing.transactions.writer import TransactionWriter
from kraft_node.testing.workloads.consumer import Consumer, Rejoin, fetch_committed
from kraft_node.testing.workloads.session import PAUSE_MS, ClusterSession

if TYPE_CHECKING:
    from kraft_node.testing.machine import SimCluster
    from kraft_node.testing.transactions.ledger import Ledger

ABORTED_SHARE: Final = 0.2


async def copy(
    producer: ProducerProcess,
    fetcher: CommittedFetcher,
    target: list[tuple[str, int]],
    group: str,
    *,
    generation: int = -1,
    member: str = "",
) -> bool:
    """Copy what was fetched, in one transaction. Returns whether it is committed: if not, read the offsets again.

    Raises Fenced.
    """
    positions = fetcher.moved()
    if not positions:
        return True
    records, fetcher.fresh = fetcher.fresh, []
    rng = producer.session.world.rng
    transaction = producer.begin()
    commit = rng.random() >= ABORTED_SHARE
    try:
        by_partition: dict[tuple[str, int], list[str]] = {}
        for number, ((topic, index), offset, value) in enumerate(records):
            copied = f"{transaction.name}:{number}<{group}/{topic}/{index}/{offset}/{value}"
            by_partition.setdefault(rng.choice(target), []).append(copied)
        if by_partition:
            await producer.send([producer.make(partition, values) for partition, values in by_partition.items()])
        await producer.send_offsets(group, positions, fetcher.epochs, generation=generation, member=member)
    except MustAbort as why:
        producer.session.note(f"aborts: {why}")
        commit = False
    await producer.end(commit=commit)
    if commit:
        fetcher.settled(positions)
    return commit


class GroupCopier(Consumer):
    """A member of a group of copiers."""

    fetcher = CommittedFetcher

    def __init__(
        self,
        cluster: SimCluster,
        ledger: Ledger,
        name: str,
        group: str,
        topics: dict[str, int],
        target: list[tuple[str, int]],
        timeout_ms: int,
    ) -> None:
        super().__init__(cluster, ledger.checker, name, group, topics, sessions=cluster.world.rng.random() < 0.5)
        assert isinstance(self._fetcher, CommittedFetcher)
        self._reader = self._fetcher
        self._reader.ledger = ledger
        self._target = target
        self.transactional_id = f"id of {name}"
        by_id = self._rng.random() < 0.5
        self._producer = ProducerProcess(self.session, ledger, self.transactional_id, timeout_ms, by_id=by_id)
        self._is_ready = False

    @property
    def acknowledged(self) -> int:
        """Batches that were acknowledged."""
        return self._producer.acknowledged

    async def _committed(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        found = await super()._committed(partitions)
        self._reader.ledger.found_offsets(self.group, found)
        return found

    async def _work(self) -> None:
        self._reader.fresh.clear()
        try:
            if not self._is_ready:
                await self._producer.initialize()
                self._is_ready = True
            for _ in range(self._rng.randint(1, 3)):
                await self._reader.fetch(
                    max_wait_ms=self._rng.choice((0, 100)), max_bytes=self._rng.choice((600, 4000))
                )
            own = {"generation": self._generation, "member": self._member}
            done = await copy(self._producer, self._reader, self._target, self.group, **own)  # type: ignore[arg-type]
        except Fenced as why:
            self._is_ready = False
            raise Rejoin(f"fenced: {why}") from why
        if not done:
            raise Rejoin("the transaction is aborted")


class SoleCopier(TransactionWriter):
    """Processes that copy all partitions of some topics, one after another."""

    def __init__(
        self,
        cluster: SimCluster,
        ledger: Ledger,
        name: str,
        group: str,
        source: list[tuple[str, int]],
        target: list[tuple[str, int]],
        timeout_ms: int,
    ) -> None:
        super().__init__(cluster, ledger, name, source, timeout_ms, abandons=False)
        self.group = group
        self.is_done = False
        """Whether a process has copied everything after the copier was stopped."""
        self._target = target

    async def finish(self) -> None:
        """Copy the rest."""
        while not self.is_done:
            await self.produce(self._new_producer())

    async def produce(self, producer: ProducerProcess) -> None:
        """The work of one process: until it is fenced; once the copier is stopped, until everything is copied."""
        session = producer.session
        fetcher = CommittedFetcher(session, self._ledger.checker, sessions=self._rng.random() < 0.5)
        fetcher.ledger = self._ledger
        try:
            await producer.initialize()
            positions = await self._committed(session)
            fetcher.assign(positions)
            while True:
                is_last = self.stopping
                fetcher.fresh.clear()
                await fetcher.fetch(max_wait_ms=100, max_bytes=self._rng.choice((600, 4000)))
                if is_last and not fetcher.moved() and fetcher.high_watermarks == fetcher.positions:
                    self.is_done = True
                    return
                if not await copy(producer, fetcher, self._target, self.group):
                    fetcher.assign(await self._committed(session))
                await session.sleep(self._rng.random() * 100)
        except Fenced as why:
            session.note(f"is fenced: {why}")

    async def _committed(self, session: ClusterSession) -> dict[tuple[str, int], int]:
        """The group's offsets, once no transaction holds them."""
        while True:
            coordinator = await session.coordinator(self.group)
            asked = self._ledger.checker.expect_committed(self.group, self._partitions)
            found = await fetch_committed(session, coordinator, self.group, self._partitions)
            if found is not None:
                self._ledger.checker.committed(asked, found, session.name)
                self._ledger.found_offsets(self.group, found)
                return {partition: max(offset, 0) for partition, offset in found.items()}
            await session.sleep(PAUSE_MS)
