"""Chaos under a seed, for some minutes: no acknowledged record is lost, the operator breaks nothing, all settles.

`E2E_CHAOS_MINUTES` is the time (without it the test is skipped), `E2E_CHAOS_SEED` the seed. `E2E_MACHINES` with
`E2E_CHAOS_MACHINE=N` lets the machine `labN` be cut off, too: then there must be three machines. The operator runs on
this machine behind `chaos.proxy`.
"""

from __future__ import annotations

import base64
import copy
import os
import time
from pathlib import Path
from random import Random

import pytest
import yaml

from e2e.chaos.law import Law
from e2e.chaos.process import Process
from e2e.chaos.proxy import Proxy
from e2e.chaos.repeats import unexplained
from e2e.chaos.strikes import Strikes
from e2e.kube import NAMESPACE, Cluster, Workload, get, kubectl, needs_kubernetes, operators, until

MINUTES = float(os.environ.get("E2E_CHAOS_MINUTES", "0"))
SEED = int(os.environ.get("E2E_CHAOS_SEED") or time.time())
MACHINE = os.environ.get("E2E_CHAOS_MACHINE", "")
SETTLE_S = 900
ENDS = (0, 1, -9, -15)
"""Exit codes: stopped; the Lease was lost; killed; and SIGTERM before the process had a handler."""
LEASE_LOST = "lease was not renewed in time"
"""In the operator's log, for each end with code 1."""
pytestmark = [
    needs_kubernetes,
    pytest.mark.skipif(not MINUTES, reason="E2E_CHAOS_MINUTES is not set"),
    pytest.mark.timeout(MINUTES * 60 + 3 * SETTLE_S),
]


def _upstream(folder: Path) -> tuple[str, str]:
    """The API server's URL, and a file with its CA."""
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    cluster = config["clusters"][0]["cluster"]
    if "certificate-authority" in cluster:
        return cluster["server"], cluster["certificate-authority"]
    ca = folder / "ca.crt"
    ca.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    return cluster["server"], str(ca)


def _spread(cluster: Cluster) -> str:
    """Give each machine one controller and one broker. Returns a machine for the clients, which is never cut off."""
    pools = copy.deepcopy(cluster.spec["nodePools"])
    for pool in pools:
        pool["pod"] = {"antiAffinity": "Required"}
    cluster.document["spec"]["nodePools"] = pools
    names = [str(one["metadata"]["name"]) for one in get("nodes", namespace="")]
    return next(name for name in names if name != f"lab{MACHINE}")


def test_chaos_loses_no_record_and_the_cluster_settles(operator: None, tmp_path: Path) -> None:
    print(f"\nseed {SEED}, {MINUTES:g} minutes, operator's log {tmp_path / 'operator.log'}")
    rng = Random(SEED)
    cluster = Cluster("chaos")
    machine = _spread(cluster) if MACHINE else ""
    kubectl("scale", "deploy", "--all", "-n", NAMESPACE, "--replicas=0", check=True)
    until("no other operator works", lambda: not operators(), 120)
    url, ca = _upstream(tmp_path)
    token = kubectl("create", "token", "kraftcluster-operator", "-n", NAMESPACE, "--duration=6h", check=True).stdout
    proxy = Proxy(url, ca, Random(rng.random()))
    law = Law(proxy, cluster.name, token.strip())
    proxy.judge = law.judge
    try:
        with proxy as here, Process(here, tmp_path) as process:
            proxy.written = process.wrote
            cluster.delete()
            cluster.apply()
            cluster.settle(SETTLE_S)
            strikes = Strikes(cluster, proxy, process, law, rng, MACHINE)
            with Workload(cluster, rate=100, machine=machine) as work:
                strikes.run(MINUTES * 60)
                began = time.monotonic()
                cluster.settle(SETTLE_S)
                print(f"settled {time.monotonic() - began:.0f} s after the last strike")
            repeated = unexplained(cluster, work, tmp_path)
            print(f"strikes {dict(strikes.done)}; proxy {proxy.counts}; operator ended {len(process.ends)} times")
            print(f"{law.judged} deletions judged; {work.report}")
            ends = {code for code in process.ends if code not in ENDS}
            assert not law.broken, law.broken
            log = process.log.read_text()
            assert not ends, f"exit codes {ends}: {log[-3000:]}"
            assert process.ends.count(1) <= log.count(LEASE_LOST), log[-3000:]
            assert not work.report["lost"], work.report
            assert not repeated, (repeated[:20], work.report)
            assert not work.report.get("displaced"), work.report
            assert work.report["acknowledged"] > MINUTES * 60, work.report
            assert "Traceback" not in process.log.read_text()
            cluster.delete()
    finally:
        kubectl("scale", "deploy", "--all", "-n", NAMESPACE, "--replicas=2", check=True)
