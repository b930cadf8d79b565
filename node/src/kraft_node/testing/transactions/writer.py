"""Writers: each owns a transactional id and runs one producer after another with it.

A producer writes transactions over several partitions, and aborts some. It is paused or killed at any moment; then a
successor takes over, while the former, once it wakes up, goes on as if nothing had happened.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from kraft_node.testing.script import Script
from kraft_node.testing.transactions.producer import Fenced, MustAbort, ProducerProcess
from kraft_node.testing.workloads.session import PAUSE_MS, ClusterSession

if TYPE_CHECKING:
    from kraft_node.testing.machine import SimCluster
    from kraft_node.testing.transactions.ledger import Ledger

LIVES_MS: Final = (300.0, 1500.0, 4000.0, 15_000.0)
"""How long a producer works at most before it is paused or killed."""
PAUSES_MS: Final = (400.0, 2000.0, 8000.0)
KILLED_SHARE, ABORTED_SHARE, PLAIN_PAUSE_MS = 0.4, 0.3, 400.0
RECORDS_MAX, PARTITIONS_MAX, ROUNDS_MAX = 4, 4, 3
EMPTY_SEEDS, EMPTY_SHARE = 0.3, 0.3
"""Share of the seeds with transactions that are aborted while they are empty, and their share there."""


class TransactionWriter:
    """Owns a transactional id."""

    def __init__(
        self,
        cluster: SimCluster,
        ledger: Ledger,
        name: str,
        partitions: list[tuple[str, int]],
        timeout_ms: int,
        *,
        abandons: bool,
    ) -> None:
        """`abandons`: in the end, a killed producer's transaction is left to the coordinator."""
        self.session = ClusterSession(cluster, name)
        self.stopping = False
        self.transactional_id = f"id of {name}"
        self.abandons = abandons
        self._cluster = cluster
        self._ledger = ledger
        self._partitions = partitions
        self._timeout_ms = timeout_ms
        self._rng = cluster.world.rng
        # A generator of its own keeps the runs of other seeds unchanged.
        self._own = random.Random(f"{name} {cluster.world.seed}")
        self._empty_share = EMPTY_SHARE if random.Random(f"empty {cluster.world.seed}").random() < EMPTY_SEEDS else 0.0
        self._producers: list[ProducerProcess] = []

    @property
    def acknowledged(self) -> int:
        """Batches that were acknowledged."""
        return sum(producer.acknowledged for producer in self._producers)

    async def run(self) -> None:
        """Run producers until it is stopped; then wait for the last ones."""
        rng, world = self._rng, self._cluster.world
        scripts: list[Script] = []
        while not self.stopping:
            producer = self._new_producer()
            script = Script(world, producer.session.name, self.produce(producer), producer.session.host)
            scripts.append(script)
            await self._until(script, rng.choice(LIVES_MS) * rng.random())
            if script.done or self.stopping:
                continue
            if rng.random() < KILLED_SHARE:
                self._kill(producer, script)
            else:
                pause_ms = rng.choice(PAUSES_MS)
                self.session.note(f"{producer.session.name} is paused for {pause_ms:.0f} ms")
                producer.session.pause(pause_ms)
            await self.session.sleep(rng.random() * rng.choice((50.0, 1000.0)))
        if self.abandons and scripts and not scripts[-1].done:
            self._kill(self._producers[-1], scripts[-1])
        while not all(script.done for script in scripts):
            await self.session.sleep(PAUSE_MS)

    def _new_producer(self) -> ProducerProcess:
        session = ClusterSession(self._cluster, f"{self.session.name}.{len(self._producers) + 1}")
        by_id = self._rng.random() < 0.5
        producer = ProducerProcess(session, self._ledger, self.transactional_id, self._timeout_ms, by_id=by_id)
        for former in self._producers:
            former.is_newest = False
        # A former process whose initialization is under way may take over later.
        producer.is_newest = all(former.is_initialized for former in self._producers)
        self._producers.append(producer)
        return producer

    async def _until(self, script: Script, duration_ms: float) -> None:
        end_ms = self._cluster.world.now_ms + duration_ms
        while not script.done and not self.stopping and self._cluster.world.now_ms < end_ms:
            await self.session.sleep(30.0)

    def _kill(self, producer: ProducerProcess, script: Script) -> None:
        self.session.note(f"{producer.session.name} is killed")
        script.stop()
        producer.session.host.end_life()
        self._cluster.network.crash(producer.session.host)

    async def produce(self, producer: ProducerProcess) -> None:
        """The work of one producer, until it is fenced or the writer is stopped."""
        rng = self._rng
        try:
            await producer.initialize()
            while not self.stopping:
                await self._transaction(producer)
                await producer.session.sleep(rng.random() * rng.choice((20.0, 300.0)))
        except Fenced as why:
            producer.session.note(f"is fenced: {why}")

    async def _transaction(self, producer: ProducerProcess) -> None:
        rng = self._rng
        transaction = producer.begin()
        if producer.bumps and self._own.random() < self._empty_share:
            await producer.end(commit=False)  # as after a rebalance: nothing was sent
            return
        number = 0
        try:
            for _ in range(rng.randint(1, ROUNDS_MAX)):
                chosen = rng.sample(self._partitions, rng.randint(1, min(PARTITIONS_MAX, len(self._partitions))))
                batches = []
                for partition in [*chosen, *rng.sample(chosen, rng.randint(0, 1))]:
                    count = rng.randint(1, RECORDS_MAX)
                    values = [f"{transaction.name}:{number + place}" for place in range(count)]
                    number += count
                    batches.append(producer.make(partition, values, key=b"k%d" % rng.randrange(4)))
                await producer.send(batches)
                await producer.session.sleep(rng.random() * rng.choice((10.0, 200.0)))
            commit = rng.random() >= ABORTED_SHARE
        except MustAbort as why:
            producer.session.note(f"aborts: {why}")
            commit = False
        await producer.end(commit=commit)


class PlainWriter:
    """An idempotent producer without transactions, on the same partitions."""

    pause_ms = PLAIN_PAUSE_MS
    """The longest pause between two rounds."""
    process: type[ProducerProcess] = ProducerProcess

    def __init__(self, cluster: SimCluster, ledger: Ledger, name: str, partitions: list[tuple[str, int]]) -> None:
        self.session = ClusterSession(cluster, name)
        self.stopping = False
        self._partitions = partitions
        self._rng = cluster.world.rng
        by_id = self._rng.random() < 0.5
        self._producer = self.process(self.session, ledger, None, 60_000, by_id=by_id)

    @property
    def acknowledged(self) -> int:
        """Batches that were acknowledged."""
        return self._producer.acknowledged

    async def run(self) -> None:
        """Send batches until stopped, one round after another; if a batch gets no outcome, take a new producer id."""
        rng, producer = self._rng, self._producer
        await producer.initialize()
        while not self.stopping:
            name = producer.begin().name
            chosen = rng.sample(self._partitions, min(rng.randint(1, 2), len(self._partitions)))
            batches = [producer.make(partition, [f"{name}:{place}"]) for place, partition in enumerate(chosen)]
            try:
                await producer.send(batches)
            except MustAbort as why:
                self.session.note(f"begins again: {why}")
                await producer.initialize()
            await self.session.sleep(rng.random() * self.pause_ms)
