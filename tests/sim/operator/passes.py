"""`python -m tests.sim.operator.passes [--seeds N] [--first SEED]`: the whole reconciler through a seed's life."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Any, Final
from unittest.mock import patch

from kraft_operator import reconcile
from kraft_operator.apply.kafka import RefusedError
from kraft_operator.apply.kubernetes import NotYetError
from kraft_operator.events import Events
from kraft_operator.evictions import MARK
from kraft_operator.kube.client import ApiError
from kraft_operator.metrics import Metrics
from kraft_operator.plan.model.steps import Plan
from kraft_operator.report.status import nodes_of
from kraft_protocol.client.aio import UnreachableError
from tests.sim.operator.clock import SimLoop
from tests.sim.operator.cluster import BROKERS, KEY, VOTERS, SimApi, SimView, by_kafka, resource
from tests.unit.operator.fake_kubernetes import watched

BEGIN_S: Final = 60.0
STORY_S: Final = 240.0
END_S: Final = 900.0
STEP_S: Final = 0.2
EXPECTED: Final = (ApiError, RefusedError, UnreachableError, NotYetError)
"""The errors that end a pass."""
WORST: Final = 0.15
"""Of the plans with a step that disrupts."""


class Life:
    """One cluster under one seed: it is created, lives through faults and edits, and settles."""

    def __init__(self, seed: int, *, drains: bool = False) -> None:
        """Make a life; with `drains` machines are drained through the webhook, with random numbers of their own."""
        self.rng = Random(seed)
        self.drains = Random(seed) if drains else None
        self.evicted = 0
        self.loop = SimLoop()
        self.api = SimApi(self.loop, self.rng)
        self.api.objects["KRaftCluster", *KEY] = resource("u0")
        self.broken: AssertionError | None = None
        self.swaps = 0
        self._works: asyncio.Task[None]

    def run(self) -> None:
        """Live the life. Raises AssertionError with the broken law."""
        asyncio.set_event_loop(self.loop)
        logging.disable()
        try:
            with simulated(self):
                self.loop.run_until_complete(self._main())
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()
            logging.disable(logging.NOTSET)

    async def _main(self) -> None:
        world = asyncio.create_task(self._world())
        self._works = asyncio.create_task(self._operator())
        try:
            await self._story()
        finally:
            # A broken law ends the story at once; the tasks must not outlive the loop.
            for task in (world, self._works):
                task.cancel()
            await asyncio.gather(world, self._works, return_exceptions=True)

    async def _story(self) -> None:
        self.api.faults = False
        await self._until(self.settled, BEGIN_S, "it does not begin")
        self.api.faults = True
        until = self.loop.time() + STORY_S
        while self.loop.time() < until and self.broken is None:
            await asyncio.sleep(self.rng.expovariate(1 / 12))
            self._strike()
            self._drain()
            if self.rng.random() < 0.1:
                self._works.cancel()
                await asyncio.gather(self._works, return_exceptions=True)
                self._works = asyncio.create_task(self._operator())
        self.api.faults, self.api.slow_until = False, 0.0
        await self._until(self.settled, END_S, "it does not settle")

    async def _until(self, check: Any, within_s: float, what: str) -> None:
        until = self.loop.time() + within_s
        while not check():
            if self.broken is not None:
                raise self.broken
            status = self.api.objects["KRaftCluster", *KEY].get("status", {})
            assert self.loop.time() < until, f"{what}: {status.get('conditions')}"
            await asyncio.sleep(1)
        if self.broken is not None:
            raise self.broken

    async def _world(self) -> None:
        while True:
            self.api.work_on()
            self.api.cluster.tick()
            await asyncio.sleep(STEP_S)

    async def _operator(self) -> None:
        """Run passes from the queue; a cancellation ends the operator and its memory."""
        made = reconcile.Reconciler(self.api, Events(self.api, "sim"), Metrics(), clock=self.loop.time)  # type: ignore[arg-type]
        made.touched(KEY)
        watch = asyncio.create_task(self._watch(made))
        try:
            await self._passes(made)
        finally:
            watch.cancel()

    async def _watch(self, made: reconcile.Reconciler) -> None:
        """Report changes up to five seconds late."""
        before = b""
        while True:
            now = watched(self.api.objects)
            if now != before:
                before = now
                self.loop.call_later(self.rng.uniform(0, 5), made.touched, KEY)
            await asyncio.sleep(0.5)

    async def _passes(self, made: reconcile.Reconciler) -> None:
        while self.broken is None:
            try:
                after_s = await made.reconcile(KEY)
            except AssertionError as error:
                self.broken = error
                return
            except EXPECTED as error:  # as in the queue: the next pass observes anew
                self.error = error
                after_s = 0.5
            except Exception as error:
                self.broken = AssertionError(f"defect: {error!r}")
                return
            await asyncio.sleep(min(after_s or 5.0, 5.0))

    def settled(self) -> bool:
        """Whether all nodes run the requested version and configuration, replicas are in sync, and no work is left."""
        cluster = self.api.cluster
        reported = self.api.objects["KRaftCluster", *KEY].get("status", {})
        conditions = {one["type"]: one["status"] for one in reported.get("conditions", ())}
        return (
            all(cluster.is_up(i) for i in (*VOTERS, *BROKERS))
            and all(partition.isr == {*BROKERS} for partition in cluster.partitions)
            and conditions.get("Ready") == "True"
            and conditions.get("Progressing") == conditions.get("Degraded") == "False"
            and not any(MARK in one["metadata"].get("annotations", {}) for one in self.api.objects.values())
            and reported.get("observedGeneration") == self.api.objects["KRaftCluster", *KEY]["metadata"]["generation"]
            and not any(node.get("needsRestart") for node in reported.get("nodes", ()))
        )

    # Faults and edits

    def _strike(self) -> None:
        dice, spec = self.rng.random(), self.api.objects["KRaftCluster", *KEY]["spec"]
        if dice < 0.3:
            self.api.crash(self.rng.choice((*VOTERS, *BROKERS, *BROKERS)))
        elif dice < 0.4:
            self._slow()
        elif dice < 0.65:
            spec["image"] = f"x/y:{self.rng.randrange(10**6)}"
            if self.rng.random() < 0.6:
                spec["config"]["log.retention.ms"] = str(self.rng.randrange(10**6))
            self._edited()
            if self.rng.random() < 0.6:
                self.loop.call_later(self.rng.uniform(0, 30), self._slow)  # in the middle of the roll
        elif dice < 0.9:
            self._ask(spec)
        else:
            self.api.apply_anew(spec)

    def _drain(self) -> None:
        """Evict two pods, as the webhook marks them: the gates must restart each."""
        if self.drains is None or self.drains.random() > 0.4:
            return
        pods = [one for (kind, *_), one in sorted(self.api.objects.items()) if kind == "Pod"]
        for one in self.drains.sample(pods, min(2, len(pods))):
            self.evicted += 1
            one["metadata"].setdefault("annotations", {})[MARK] = "asked"
            one["metadata"]["resourceVersion"] = f"evicted-{self.evicted}"

    def notice(self, plan: Plan) -> None:
        """Fault at the worst moment: before the operator stops a node, requests are throttled and another node dies."""
        if plan.guarded is None or not self.api.faults or self.rng.random() > WORST:
            return
        self.api.slow_until = self.loop.time() + 60
        stopped = set(nodes_of(plan.guarded))
        others = [i for i in (BROKERS if stopped & {*BROKERS} else VOTERS) if i not in stopped]
        self.loop.call_later(0.5, self._crash, self.rng.choice(others))

    def _slow(self) -> None:
        """Throttle the API server, and cause another event."""
        if not self.api.faults:
            return
        self.api.slow_until = self.loop.time() + self.rng.uniform(20, 60)
        victim = self.rng.choice((*VOTERS, *BROKERS, *BROKERS))
        self.loop.call_later(self.rng.uniform(5, 50), self._crash, victim)

    def _crash(self, victim: int) -> None:
        if self.api.faults:
            self.api.crash(victim)

    def _edited(self) -> None:
        self.api.objects["KRaftCluster", *KEY]["metadata"]["generation"] += 1

    def _ask(self, spec: dict[str, Any]) -> None:
        """Request a replacement, by an entry that stays or by an annotation."""
        node_id, name = self.rng.choice((*VOTERS, *BROKERS)), f"r{self.rng.randrange(10**6)}"
        self.api.asked[node_id].add(name)
        if self.rng.random() < 0.5:
            spec["replacements"].append({"name": name, "node": node_id, "by": "EmptyDisk", "accept": []})
            self._edited()
        else:
            annotations = self.api.objects["KRaftCluster", *KEY]["metadata"].setdefault("annotations", {})
            annotations[f"replace.kraftcluster.io/{name}"] = f"{node_id} EmptyDisk"


@contextlib.contextmanager
def simulated(life: Life) -> Iterator[None]:
    """Replace the reconciler's views and its requests to the cluster by the simulation."""
    cluster = life.api.cluster

    async def carry_out(_client: object, step: Any, *_: object, **__: object) -> None:
        await by_kafka(cluster, step)

    planned = reconcile.plan

    def noticed(*wanted: Any) -> Plan:
        found = planned(*wanted)
        life.notice(found)
        return found

    async def says_nothing(*_: object, **__: object) -> dict[int, object]:
        return {}

    with (
        patch.object(reconcile, "plan", noticed),
        patch("kraft_operator.observe.cluster.View", lambda *_: SimView(cluster)),
        patch("kraft_operator.observe.status.Statuses.of", says_nothing),
        patch("kraft_operator.apply.kafka.carry_out", carry_out),
    ):
        yield


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.operator.passes", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    failed, began, swaps = 0, time.monotonic(), 0
    for seed in range(args.first, args.first + args.seeds):
        life = Life(seed)
        try:
            life.run()
        except AssertionError as error:
            failed += 1
            print(f"FAILED --first {seed} --seeds 1: {str(error)[:900]}", flush=True)
        swaps += sum(life.api.disks.values())
    print(f"{args.seeds} seeds, {swaps} disks replaced, {failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
