"""The way back from a migration, as `kraftcluster migrate revert` says it, on real processes, under faults."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.compat.zookeeper_cluster import OldCluster, OurController

BACK_S: Final = 900.0
LOOK_S: Final = 1.0
BROKERS, STOP, BEHIND, SILENT, DONE = "brokers", "stop", "behind", "silent", "done"
REFUSED, NOT_THERE = 3, 4
"""Exit codes."""


class Revert:
    """Gives a cluster back to ZooKeeper's brokers.

    `rested` waits until all replicas are in sync. `fault` disturbs one of the parties; with `wait` it returns once the
    clients go on. `kills`: whether to kill the controllers instead of stopping them.
    """

    def __init__(
        self, cluster: OldCluster, rested: Callable[[], None], fault: Callable[..., None], kills: Callable[[], bool]
    ) -> None:
        self._cluster = cluster
        self._rested = rested
        self._fault = fault
        self._kills = kills
        nodes = [node for node in cluster.nodes.values() if isinstance(node, OurController)]
        self._pages = [f"127.0.0.1:{node.http_port}" for node in nodes]
        self._metadata_log: Path | None = None

    def stop_controllers(self, *, killed: bool, active_id: int | None = None) -> Path:
        """Stop or kill all controllers. Returns the folder of the metadata log of the active one."""
        self._metadata_log = self._cluster.stop_our_controllers(killed=killed, active_id=active_id)
        return self._metadata_log

    def play(self) -> None:
        """Raises AssertionError if a step does not succeed."""
        cluster = self._cluster
        until = time.monotonic() + BACK_S
        while (due := self._due()) != DONE:
            assert time.monotonic() < until, f"the revert does not go on: {due}"
            print(f"  revert: {due}", flush=True)
            if due == BROKERS:
                for broker_id in cluster.migration().get("kraftBrokers", []):
                    cluster.restart_with_zookeeper(broker_id)
                    self._rested()
                    self._fault(f"broker {broker_id} uses ZooKeeper again", ("controller", "broker", "zookeeper"))
            elif due == STOP:
                self.stop_controllers(killed=self._kills())
                self._fault("no controller", ("zookeeper",), wait=False)
            elif due == BEHIND:
                cluster.launch_our_controllers()
                self._metadata_log = None
            else:
                time.sleep(LOOK_S)
        self._fault("given back", ("broker", "zookeeper"))
        for broker_id in sorted(cluster.nodes):
            cluster.leave_migration(broker_id)
            self._rested()

    def _due(self) -> str:
        """The step that the command names; DONE once ZooKeeper is given back and a broker is the controller."""
        words = [sys.executable, "-m", "kraft_cli.kraftcluster", "migrate", "revert", *self._pages, "--json"]
        words += ["--zookeeper", self._cluster.zookeeper.address]
        if self._metadata_log is not None:
            words += ["--metadata-log", str(self._metadata_log)]
        done = subprocess.run(words, capture_output=True, check=False, timeout=300)
        out, message = done.stdout.decode(), done.stderr.decode()
        if done.returncode == REFUSED and "ZooKeeper lacks" in message:
            return BEHIND
        if done.returncode == NOT_THERE:
            return SILENT
        assert done.returncode in (0, 1) and out, f"{done.returncode} {out} {message}"
        found: dict[str, Any] = json.loads(out)
        return DONE if found["done"] else str(found["step"])
