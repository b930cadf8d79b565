"""From apply to settled in simulated time: `python -m tests.sim.operator.begin [--plaintext]` prints the operator's
waits.

Nothing fails and nothing is slow here. Kubernetes and the nodes need the times below, and watches report every change
at once. All other time is the operator's: pauses and back-offs that no change ends.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from random import Random
from typing import Any, Final

from kraft_operator import reconcile
from kraft_operator.events import Events
from kraft_operator.metrics import Metrics
from kraft_operator.pass_queue import Queue
from tests.sim.operator.clock import SimLoop
from tests.sim.operator.cluster import BROKERS, KEY, VOTERS, SimApi, resource
from tests.sim.operator.passes import Life
from tests.unit.operator.fake_kubernetes import Object

JOB_S: Final = 3.0
RUNS_S: Final = 1.0
"""From a pod's creation to its process."""
READY_S: Final = 2.5
"""From a pod's creation to its readiness, once its process has found what it needs."""
SPREAD_S: Final = 0.4
"""Nodes are not done at the same moment."""
WORLD_S: Final = JOB_S + READY_S + 2 * SPREAD_S
"""Volumes are formatted, then nodes start: each at the same time as the others of its kind."""
STOPS_S: Final = 0.5
CAUGHT_UP_S: Final = 0.5
ROLL_S: Final = 6 * (STOPS_S + READY_S + 2 * SPREAD_S) + 3 * CAUGHT_UP_S
TELLS_S: Final = 0.02
TICK_S: Final = 0.05
SHOWN: Final = {"Pod", "PersistentVolumeClaim", "Service", "ConfigMap", "Job"}


class QuietApi(SimApi):
    """An API server and kubelets with known delays."""

    def __init__(self, loop: SimLoop, rng: Random) -> None:
        super().__init__(loop, rng)
        self.faults = False
        self.requests: Counter[str] = Counter()
        self.wake: Any = lambda: None
        self.changes = 0
        """Ticks at which watches had something to tell."""
        self._reported: dict[tuple[str, str, str], Object] = {}

    async def _wait(self) -> None:
        await asyncio.sleep(0.01)

    async def get(self, kind: str, namespace: str | None, name: str) -> Object | None:
        self.requests[f"get {kind}"] += 1
        return await super().get(kind, namespace, name)

    async def list(self, kind: str, namespace: str | None, selector: str = "") -> list[Object]:
        self.requests[f"list {kind}"] += 1
        return await super().list(kind, namespace, selector)

    def _refuse(self, fault: Any, verb: str, key: tuple[str, str, str]) -> None:
        if fault is self.before:
            self.requests[f"{verb} {key[0]}"] += 1
        super()._refuse(fault, verb, key)

    def work_on(self) -> None:
        """One tick of everything except the operator; watches report the changes."""
        now = self.loop.time()
        for key, one in list(self.objects.items()):
            if key[0] == "Job" and "status" not in one and now >= one.setdefault("due", now + self._after(one, JOB_S)):
                one["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
            elif key[0] == "PersistentVolumeClaim" and "status" not in one:
                one["status"] = {"phase": "Bound"}
            elif key[0] == "Pod":
                self._pod(key, one, now)
        shown = {key: repr(one) for key, one in self.objects.items() if key[0] in SHOWN}
        if shown != self._reported:
            self._reported = shown
            self.changes += 1
            self.loop.call_later(TELLS_S, self.wake)

    @staticmethod
    def _after(one: Object, seconds: float) -> float:
        """A delay with a random part: nodes never finish at the same moment."""
        return seconds + SPREAD_S * (int(one["metadata"]["labels"]["kraftcluster.io/node"]) % 7) / 6

    def _pod(self, key: tuple[str, str, str], one: Object, now: float) -> None:
        number = int(one["metadata"]["labels"]["kraftcluster.io/node"])
        since = one.setdefault("since", now)
        if "deletionTimestamp" in one["metadata"]:
            self.cluster.went_down(number, cleanly=True)
            if now >= one.setdefault("gone", now + self._after(one, STOPS_S)):
                del self.objects[key]
            return
        if now < since + self._after(one, RUNS_S):
            return
        if not self.cluster.is_up(number) and (number in VOTERS or self.cluster.quorum() is not None):
            self.cluster.came_up(number)
            self.cluster.catches_up_s[number] = CAUGHT_UP_S
        ready = self.cluster.is_up(number) and now >= since + self._after(one, READY_S)
        if number in VOTERS:
            ready = ready and self.cluster.quorum() is not None
        if one.get("reported") != ready:
            one["reported"] = ready
            self.reported(one, ready=ready, restarts=0)
            one["status"]["containerStatuses"][0]["state"] = {"running": {}}


class Begin(Life):
    """One cluster from nothing to settled; then a change that restarts all nodes."""

    def __init__(self, *, tls: bool = True, resync_s: float = 30.0) -> None:
        super().__init__(0)
        self._tls = "Enabled" if tls else "Disabled"
        self.api: QuietApi = QuietApi(self.loop, Random(0))
        self._resync_s = resync_s
        self.took_s: dict[str, float] = {}
        self.cost: dict[str, Counter[str]] = {}
        self.changes: dict[str, int] = {}

    async def _main(self) -> None:
        made = reconcile.Reconciler(
            self.api,  # type: ignore[arg-type]
            Events(self.api, "sim"),  # type: ignore[arg-type]
            Metrics(),
            resync_s=self._resync_s,
            clock=self.loop.time,
        )

        queue = Queue(made.reconcile, self.loop.time)

        def wake() -> None:
            made.touched(KEY, users=False)
            queue.put(KEY)

        self.api.wake = wake
        tasks = [asyncio.create_task(self._world()), asyncio.create_task(queue.run())]
        self.api.objects["KRaftCluster", *KEY] = resource("u0", security={"tls": self._tls})
        await self._timed("apply to ready", wake, self.ready)
        await self._timed("settles", lambda: None, self.settled)
        self.api.objects["KRaftCluster", *KEY]["spec"]["image"] = "x/y:2"
        self._edited()
        await self._timed("roll", wake, self.rolled)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _world(self) -> None:
        while True:
            self.api.work_on()
            self.api.cluster.tick()
            await asyncio.sleep(TICK_S)

    async def _timed(self, what: str, begin: Any, check: Any) -> None:
        began, before, changes = self.loop.time(), Counter(self.api.requests), self.api.changes
        begin()
        while not check():
            assert self.loop.time() < began + 600, f"{what}: {self.api.objects['KRaftCluster', *KEY].get('status')}"
            await asyncio.sleep(TICK_S)
        self.changes[what] = self.api.changes - changes
        self.took_s[what], self.cost[what] = self.loop.time() - began, self.api.requests - before

    def ready(self) -> bool:
        reported = self.api.objects["KRaftCluster", *KEY].get("status", {})
        return any(one["type"] == "Ready" and one["status"] == "True" for one in reported.get("conditions", ()))

    def rolled(self) -> bool:
        pods = [one for (kind, *_), one in self.api.objects.items() if kind == "Pod"]
        return len(pods) == len(VOTERS + BROKERS) and self.settled() and all("x/y:2" in repr(one) for one in pods)


def main() -> int:
    if "-v" in sys.argv:
        logging.basicConfig(level=logging.INFO)
    life = Begin(tls="--plaintext" not in sys.argv)
    life.run()
    for what, seconds in life.took_s.items():
        cost = life.cost[what]
        print(f"{what}: {seconds:.1f} s, {life.changes[what]} changes, {sum(cost.values())} requests")
        print("  " + ", ".join(f"{count} {kind}" for kind, count in cost.most_common(8)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
