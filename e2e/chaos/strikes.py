"""Faults of a cluster under one seed: in nodes, objects, the API server and the operator; and edits.

At most one volume is lost at a time, and the next fault waits until its node is whole again. A second loss could
legitimately lose records.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from e2e.chaos.law import Law
from e2e.chaos.process import Process
from e2e.chaos.proxy import CALM, Mood, Proxy
from e2e.kube import NAMESPACE, NODE_IMAGE, OTHER_IMAGE, Cluster, get, kubectl, until

PAUSE_S: Final = 12.0
"""Between two strikes, on average."""
WHOLE_S: Final = 420.0
API_RESTART: Final = os.environ.get("E2E_API_RESTART", "")
"""A program that kills the API server and starts it again."""
MACHINES: Final = os.environ.get("E2E_MACHINES", "")
CUT_S: Final = 50.0
"""A machine is missed after 40 s."""


class Strikes:
    """Faults of one cluster."""

    def __init__(self, cluster: Cluster, proxy: Proxy, process: Process, law: Law, rng: Random, machine: str) -> None:
        """Prepare the faults. `machine`: the number of a machine that may be disconnected; empty for none."""
        self._cluster, self._proxy, self._process, self._law, self._rng = cluster, proxy, process, law, rng
        self._machine = machine
        self.done: Counter[str] = Counter()
        self._began = time.monotonic()
        self._asked = 0
        self._ways: dict[Callable[[], str], float] = {
            self._pods: 6,
            self._config_maps: 2,
            self._shared: 1,
            self._lease: 1,
            self._volume: 1.5,
            self._operator: 4,
            self._mood: 4,
            self._change: 4,
            self._api_server: 1 if API_RESTART else 0,
            self._machine_cut: 1 if machine else 0,
        }

    def run(self, seconds: float) -> None:
        """Cause faults for that long; then stop."""
        until_ = time.monotonic() + seconds
        while time.monotonic() < until_:
            time.sleep(min(self._rng.expovariate(1 / PAUSE_S), 60))
            self.strike()
        self._proxy.mood = CALM

    def strike(self) -> None:
        (way,) = self._rng.choices(list(self._ways), list(self._ways.values()))
        what = way()
        self.done[way.__name__.strip("_")] += 1
        print(f"  {time.monotonic() - self._began:6.0f} s  {way.__name__.strip('_')}: {what}", flush=True)

    def _harmed(self) -> None:
        self._law.struck_at = time.monotonic()

    # Nodes and objects

    def _pods(self) -> str:
        pods = sorted(self._cluster.pods())
        if not pods:
            return "there are none"
        victims = self._rng.sample(pods, min(len(pods), self._rng.choice((1, 1, 1, 2))))
        names = [f"{self._cluster.name}-{number}" for number in victims]
        forced = ("--grace-period=0", "--force") if self._rng.random() < 0.6 else ("--wait=false",)
        self._harmed()
        kubectl("delete", "pod", *names, "-n", NAMESPACE, "--ignore-not-found", *forced)
        self._harmed()
        return f"{victims} {' '.join(forced)}"

    def _delete(self, kind: str, selector: str) -> str:
        found = sorted(one["metadata"]["name"] for one in get(kind, selector=selector))
        if not found:
            return "there are none"
        name = self._rng.choice(found)
        kubectl("delete", kind, name, "-n", NAMESPACE, "--ignore-not-found", "--wait=false")
        return name

    def _config_maps(self) -> str:
        """The ConfigMaps of a node, or of the record."""
        return self._delete("configmap", f"app.kubernetes.io/instance={self._cluster.name}")

    def _shared(self) -> str:
        kind = self._rng.choice(("service", "pdb"))
        return self._delete(kind, f"app.kubernetes.io/instance={self._cluster.name}")

    def _lease(self) -> str:
        kubectl("delete", "lease", "kraftcluster-operator", "-n", NAMESPACE, "--ignore-not-found")
        return "deleted"

    def _volume(self) -> str:
        """Delete a broker's claims, and request its replacement."""
        self._proxy.mood = CALM
        until("the cluster is whole before a volume goes", self._cluster.settled, WHOLE_S)
        number = self._rng.choice(sorted(n for n in self._cluster.pods() if n > 100))
        self._asked += 1
        self._law.given_up.add(number)
        selector = f"app.kubernetes.io/instance={self._cluster.name},kraftcluster.io/node={number}"
        kubectl("delete", "pvc", "-n", NAMESPACE, "-l", selector, "--wait=false")
        request = f"replace.kraftcluster.io/chaos{self._asked}={number} EmptyDisk"
        kubectl("annotate", "kc", self._cluster.name, "-n", NAMESPACE, request, check=True)
        until("the replacement is done", lambda: self._replaced() and self._cluster.settled(), WHOLE_S)
        return f"of {number}"

    def _replaced(self) -> bool:
        annotations = self._cluster.resource["metadata"].get("annotations", {})
        return f"replace.kraftcluster.io/chaos{self._asked}" not in annotations

    # Operator, API server, machine

    def _operator(self) -> str:
        if self._rng.random() < 0.7:
            writes = self._rng.randint(1, 8)
            self._process.kill_after(writes)
            return f"killed after {writes} writes"
        number = self._rng.choice((signal.SIGKILL, signal.SIGTERM))
        self._process.end(number)
        return number.name

    def _api_server(self) -> str:
        subprocess.run([API_RESTART], check=True, capture_output=True, timeout=120)
        return "restarted"

    def _machine_cut(self) -> str:
        self._harmed()
        subprocess.run([MACHINES, "cut", self._machine], check=True, capture_output=True, timeout=60)
        try:
            time.sleep(CUT_S)
        finally:
            subprocess.run([MACHINES, "heal", self._machine], check=True, capture_output=True, timeout=60)
        self._harmed()
        return f"{self._machine} was cut off for {CUT_S:.0f} s"

    def _mood(self) -> str:
        self._proxy.mood = self._rng.choice(
            (
                CALM,
                Mood(refused=0.2),
                Mood(throttled=0.3),
                Mood(lost=0.1),
                Mood(cut=0.3),
                Mood(delay_s=3.0),
                Mood(watch_delay_s=8.0),
                Mood(0.05, 0.1, 0.05, 0.1, 1.0, 2.0),
            )
        )
        return str(self._proxy.mood)

    # Edits

    def _change(self) -> str:
        what = self._rng.choice(("config", "dynamic", "image"))
        if what == "image":
            image = self._rng.choice((NODE_IMAGE, OTHER_IMAGE))
            self._cluster.change(image=image)
            return image
        key, value = ("queued.max.requests", "log.retention.ms")[what == "dynamic"], str(self._rng.randint(600, 10**6))
        self._cluster.change(config={**self._cluster.spec["config"], key: value})
        return f"{key}={value}"
