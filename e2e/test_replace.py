"""The host of a static voter is replaced, on an empty disk and by another id; a broker loses its disk."""

from __future__ import annotations

from e2e.kube import NAMESPACE, Cluster, Workload, get, kubectl, needs_kubernetes, timed, until

pytestmark = needs_kubernetes


def _done(cluster: Cluster, name: str) -> bool:
    return any(one["name"] == name and one.get("done") for one in cluster.status.get("replacements", ()))


def _replace(cluster: Cluster, name: str, node: int, by: str, **more: object) -> None:
    entries = [*cluster.spec.get("replacements", []), {"name": name, "node": node, "by": by, **more}]
    with timed(f"replacement of {node} by {by}"):
        cluster.change(replacements=entries)
        until(f"replacement {name} is done", lambda: _done(cluster, name))
        cluster.settle()


def test_a_voter_gets_an_empty_disk(cluster: Cluster) -> None:
    voter = next(number for number in (1, 2, 3) if number != cluster.status["leader"])
    with Workload(cluster) as work:
        _replace(cluster, "disk", voter, "EmptyDisk")
    nodes = {node["id"]: node for node in cluster.status["nodes"]}
    assert nodes[voter]["disk"] == 1
    claims = {claim["metadata"]["name"] for claim in get("pvc", selector=f"app.kubernetes.io/instance={cluster.name}")}
    assert {f"data-{cluster.name}-{voter}-0", f"data-{cluster.name}-{voter}-1"} <= claims, "nothing is erased"
    work.assert_nothing_lost()


def test_the_disk_of_the_active_controller_is_lost_with_its_host(cluster: Cluster) -> None:
    """Pod and claim are lost at once: the operator names them, and makes new objects only on request."""
    leader = cluster.status["leader"]
    disk = next(node["disk"] for node in cluster.status["nodes"] if node["id"] == leader)
    claim = f"data-{cluster.name}-{leader}-{disk}"
    with Workload(cluster) as work:
        kubectl("delete", "pvc", claim, "-n", NAMESPACE, "--wait=false", check=True)
        cluster.kill(leader)
        until("it is named", lambda: cluster.condition("Degraded").get("reason") == "VolumeLost")
        assert str(leader) in cluster.condition("Degraded")["message"]
        assert leader not in cluster.pods()
        _replace(cluster, "lost", leader, "EmptyDisk")
    work.assert_nothing_lost()


def test_a_voter_is_replaced_by_another_id(cluster: Cluster) -> None:
    voter = next(number for number in (1, 2, 3) if number != cluster.status["leader"])
    with Workload(cluster) as work:
        _replace(cluster, "host", voter, "NewId")
    status = cluster.status
    assert status["voters"] == sorted({1, 2, 3, 4} - {voter})
    assert voter in status["retiredIds"]
    assert sorted(cluster.pods()) == sorted([*status["voters"], 101, 102, 103])
    work.assert_nothing_lost()


def test_a_broker_gets_an_empty_disk(cluster: Cluster) -> None:
    with Workload(cluster) as work:
        _replace(cluster, "broker", 102, "EmptyDisk")
    work.assert_nothing_lost()


def test_a_replacement_is_refused_while_another_voter_is_down(cluster: Cluster) -> None:
    voters = cluster.status["voters"]
    down, asked = voters[0], voters[1]
    cluster.annotate("skip", str(down))
    cluster.kill(down)
    until("it is down", lambda: down not in cluster.pods())
    cluster.change(
        replacements=[*cluster.spec.get("replacements", []), {"name": "risky", "node": asked, "by": "EmptyDisk"}]
    )
    until("it is refused", lambda: cluster.condition("Degraded").get("reason") == "ReplacementRefused")
    assert f"voter {down}" in cluster.condition("Degraded")["message"]
    assert asked in cluster.pods()
    cluster.change(replacements=[])
    cluster.annotate("skip", "")
    cluster.settle()
