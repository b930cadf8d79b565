"""Voters in the log (KIP-853): a static quorum becomes dynamic, gives a voter an empty disk, and grows."""

from __future__ import annotations

import copy

from e2e.kube import Cluster, Workload, get, needs_kubernetes, timed, until

pytestmark = needs_kubernetes


def _properties(cluster: Cluster, node: int) -> str:
    """The configuration file of a node: its pod names the ConfigMap."""
    volumes = cluster.pods()[node]["spec"]["volumes"]
    name = next(one["configMap"]["name"] for one in volumes if "configMap" in one)
    return str(get("configmap", name, namespace=cluster.namespace)["data"]["server.properties"])


def test_a_static_quorum_becomes_dynamic(cluster: Cluster) -> None:
    with Workload(cluster) as work, timed("static to dynamic, with a restart of six nodes"):
        cluster.change(quorum={"mode": "Dynamic"})
        until("the voters are in the log", lambda: cluster.status.get("dynamic"))
        cluster.settle()
    for node in cluster.pods():
        assert "controller.quorum.voters" not in _properties(cluster, node)
        assert "controller.quorum.bootstrap.servers" in _properties(cluster, node)
    work.assert_nothing_lost()


def test_a_dynamic_voter_gets_an_empty_disk(cluster: Cluster) -> None:
    voter = next(number for number in (1, 2, 3) if number != cluster.status["leader"])
    with Workload(cluster) as work, timed("a dynamic voter gets an empty disk"):
        cluster.change(replacements=[{"name": "disk", "node": voter, "by": "EmptyDisk"}])
        until("it is done", lambda: any(one.get("done") for one in cluster.status.get("replacements", ())))
        cluster.settle()
    work.assert_nothing_lost()


def test_new_voters_join_without_restarts_of_others(cluster: Cluster) -> None:
    before = cluster.uids()
    pools = copy.deepcopy(cluster.spec["nodePools"])
    pools[0]["replicas"] = 5
    with Workload(cluster) as work, timed("two voters join"):
        cluster.change(nodePools=pools, quorum={"mode": "Dynamic", "allowVoterChanges": True})
        cluster.settle()
    roles = {node["id"]: node["quorum"] for node in cluster.status["nodes"] if "controller" in node["roles"]}
    assert sorted(roles) == [1, 2, 3, 4, 5]
    assert sorted(roles.values()) == ["leader", "voter", "voter", "voter", "voter"]
    assert {number: cluster.uids()[number] for number in before} == before
    work.assert_nothing_lost()
