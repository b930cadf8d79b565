"""The way back from a migration, as `kraftcluster migrate revert` says it, on real processes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.compat.zookeeper_cluster import OldCluster, OurController

BACK_S: Final = 600.0
LOOK_S: Final = 1.0


def revert(cluster: OldCluster, rested: Callable[[], None]) -> None:
    """Give the cluster back to ZooKeeper's brokers; `rested` waits until all replicas are in sync.

    Raises AssertionError if a step does not succeed.
    """
    pages = [f"127.0.0.1:{node.http_port}" for node in cluster.nodes.values() if isinstance(node, OurController)]
    metadata_log: Path | None = None
    until = time.monotonic() + BACK_S
    while (due := _due(cluster, pages, metadata_log)) != "done":
        assert time.monotonic() < until, f"the revert does not go on: {due}"
        print(f"  revert: {due}", flush=True)
        if due == "brokers":
            for broker_id in cluster.migration().get("kraftBrokers", []):
                cluster.restart_with_zookeeper(broker_id)
                rested()
        elif due == "stop":
            metadata_log = cluster.stop_our_controllers()
        else:
            time.sleep(LOOK_S)
    for broker_id in sorted(cluster.nodes):
        cluster.leave_migration(broker_id)
        rested()


def _due(cluster: OldCluster, pages: list[str], metadata_log: Path | None) -> str:
    """The step that the command names; "done" once ZooKeeper is given back and a broker is the controller."""
    words = [sys.executable, "-m", "kraft_cli.kraftcluster", "migrate", "revert", *pages, "--json"]
    words += ["--zookeeper", cluster.zookeeper.address]
    if metadata_log is not None:
        words += ["--metadata-log", str(metadata_log)]
    done = subprocess.run(words, capture_output=True, check=False, timeout=300)
    out = done.stdout.decode()
    assert done.returncode in (0, 1) and out, f"{done.returncode} {out} {done.stderr.decode()}"
    found: dict[str, Any] = json.loads(out)
    return "done" if found["done"] else str(found["step"])
