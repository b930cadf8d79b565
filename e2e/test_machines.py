"""Machines: nodes spread over them and know their racks; one machine is disconnected, and returns.

`E2E_MACHINES` is a program that makes and removes machines: `add N`, `cut N`, `heal N`, `del N` for the machine `labN`.
"""

from __future__ import annotations

import copy
import os
import subprocess
from collections.abc import Iterator
from typing import Final

import pytest

from e2e.kube import Cluster, Workload, get, kubectl, needs_kubernetes, timed, until

PROGRAM = os.environ.get("E2E_MACHINES", "")
pytestmark = [needs_kubernetes, pytest.mark.skipif(not PROGRAM, reason="E2E_MACHINES names no program")]

ZONE: Final = "topology.kubernetes.io/zone"
MORE: Final = (2, 3)


def _machine(what: str, number: int) -> None:
    subprocess.run([PROGRAM, what, str(number)], check=True, capture_output=True, timeout=600)


@pytest.fixture(scope="module")
def zones() -> Iterator[dict[str, str]]:
    """Three machines, each its own zone; returns the zones by name. The first machine existed before."""
    (first,) = (one["metadata"]["name"] for one in get("nodes", namespace=""))
    found = {name: f"zone-{name}" for name in (first, *(f"lab{number}" for number in MORE))}
    try:
        for number in MORE:
            _machine("add", number)
        for name, zone in found.items():
            kubectl("label", "node", name, f"{ZONE}={zone}", "--overwrite", check=True)
        yield found
    finally:
        kubectl("label", "node", first, f"{ZONE}-")
        for number in MORE:
            _machine("del", number)


@pytest.fixture(scope="module")
def cluster(operator: None, zones: dict[str, str]) -> Iterator[Cluster]:
    """One controller and one broker for each machine; the voters are in the log from the beginning."""
    one = Cluster("machines", rack={}, quorum={"mode": "Dynamic"})
    pools = copy.deepcopy(one.spec["nodePools"])
    for pool in pools:
        alike = {"app.kubernetes.io/instance": one.name, "kraftcluster.io/pool": pool["name"]}
        pool["pod"] = {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": ZONE,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": alike},
                }
            ]
        }
    one.document["spec"]["nodePools"] = pools
    one.delete()
    one.apply()
    one.settle()
    yield one
    one.delete()


def test_nodes_spread_and_brokers_know_their_racks(cluster: Cluster, zones: dict[str, str]) -> None:
    machines = {number: pod["spec"]["nodeName"] for number, pod in cluster.pods().items()}
    for kind in ((1, 2, 3), (101, 102, 103)):
        assert sorted(machines[number] for number in kind) == sorted(zones)
    racks = {node["id"]: node.get("rack") for node in cluster.status["nodes"] if "broker" in node["roles"]}
    assert racks == {number: zones[machines[number]] for number in (101, 102, 103)}
    for number, rack in racks.items():
        volumes = cluster.pods()[number]["spec"]["volumes"]
        name = next(one["configMap"]["name"] for one in volumes if one["name"] == "config")
        properties = get("configmap", name)["data"]["server.properties"]
        assert f"broker.rack={rack}\n" in properties


def test_a_disconnected_machine_returns_and_no_record_is_lost(cluster: Cluster, zones: dict[str, str]) -> None:
    """No pod is replaced: a machine that does not answer may still run."""
    first, before = next(iter(zones)), cluster.uids()
    lost = [number for number, pod in cluster.pods().items() if pod["spec"]["nodeName"] == f"lab{MORE[0]}"]
    with Workload(cluster, machine=first) as work:
        _machine("cut", MORE[0])
        try:
            until("its voter is missed", lambda: cluster.condition("QuorumHealthy").get("status") == "False")
            until("Kubernetes misses its pods", lambda: not any(cluster.ready(number) for number in lost))
            until("so does the status", lambda: cluster.condition("Ready").get("status") == "False")
            until("the machine is named", lambda: cluster.condition("Degraded").get("reason") == "MachineLost")
            reported = cluster.condition("Degraded")["message"]
            assert f"lab{MORE[0]}" in reported
            assert "node.kubernetes.io/out-of-service" in reported
            assert cluster.uids() == before
        finally:
            _machine("heal", MORE[0])
        with timed("from healed to settled"):
            until("its pods are ready", lambda: all(cluster.ready(number) for number in lost))
            cluster.settle()
    assert cluster.uids() == before
    work.assert_nothing_lost()


def test_a_machine_that_is_gone_is_named_until_it_returns(cluster: Cluster, zones: dict[str, str]) -> None:
    """Once its pods were made again and found no machine, nothing was Degraded, and a broker was shown as Starting."""
    name, before = f"lab{MORE[0]}", cluster.uids()
    lost = [number for number, pod in cluster.pods().items() if pod["spec"]["nodeName"] == name]
    assert len(lost) == 2

    def states() -> set[str]:
        return {node["state"] for node in cluster.status["nodes"] if node["id"] in lost}

    with Workload(cluster, machine=next(iter(zones))) as work:
        _machine("cut", MORE[0])
        until("its nodes have that state", lambda: states() == {"MachineLost"})
        _machine("del", MORE[0])
        try:
            until("its pods are made again, in vain", lambda: states() == {"Unschedulable"})
            until("that is named", lambda: cluster.condition("Degraded").get("reason") == "Unschedulable")
            reported = cluster.condition("Degraded")["message"]
            for number in lost:
                assert f"machine {name}: bring that machine back" in reported
                assert f"kubectl kraft replace {number}" in reported
        finally:
            _machine("add", MORE[0])
            kubectl("label", "node", name, f"{ZONE}={zones[name]}", "--overwrite", check=True)
        until("its pods are ready", lambda: all(cluster.ready(number) for number in lost))
        cluster.settle()
    after = cluster.uids()
    assert {number for number in after if after[number] != before[number]} == {*lost}
    work.assert_nothing_lost()
