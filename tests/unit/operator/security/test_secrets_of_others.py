"""Secrets with the names of a cluster's certificates: of somebody else, without labels, and without an owner."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kraft_operator.plan.model import steps as do
from tests.unit.operator.fake_kubernetes import FakeApi, Watching
from tests.unit.operator.reconciling import KEY, condition
from tests.unit.operator.security.test_passes_with_tls import again, degraded, secret, settled

PASSES = 6


def metadata(api: FakeApi, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = api.objects[kind, "demo", name]["metadata"]
    return found


def foreign(kind: str, name: str) -> dict[str, Any]:
    """An object of somebody else."""
    return {
        "kind": kind,
        "metadata": {"name": name, "namespace": "demo", "uid": "theirs", "resourceVersion": "1"},
        "data": {"tls.crt": "eA=="},
    }


def warnings(api: FakeApi, reason: str) -> list[str]:
    found = [one for (kind, *_), one in api.objects.items() if kind == "Event"]
    return [one["message"] for one in found if one["reason"] == reason and one["type"] == "Warning"]


def test_a_foreign_secret_of_a_new_node_is_reported_and_stops_that_node_only() -> None:
    """The creation failed with 409 in each pass, and nothing of the cluster was looked after."""

    async def then(api: FakeApi, operator: Watching) -> None:
        theirs = foreign("Secret", "sample-104-tls")
        api.objects["Secret", "demo", "sample-104-tls"] = theirs
        pools = api.objects["KRaftCluster", *KEY]["spec"]["nodePools"]
        next(one for one in pools if "broker" in one["roles"])["replicas"] = 5
        for _ in range(3 * PASSES):
            await again(api, operator)
            api.work()
        assert degraded(api) == "InTheWay"
        assert "Secret sample-104-tls" in condition(api, "Degraded")["message"]
        assert any("sample-104-tls" in message for message in warnings(api, "InTheWay"))
        assert ("Pod", "demo", "sample-104") not in api.objects, "it would have no certificate"
        assert ("Pod", "demo", "sample-105") in api.objects, "the rest of the cluster goes on"
        assert api.objects["Secret", "demo", "sample-104-tls"] == theirs
        del api.objects["Secret", "demo", "sample-104-tls"]
        for _ in range(PASSES):
            await again(api, operator)
            api.work()
        assert ("Pod", "demo", "sample-104") in api.objects
        assert degraded(api) == ""

    settled(then)


def test_a_node_without_a_certificate_is_neither_started_nor_restarted() -> None:
    for step in (do.CreatePod(1, {}), do.Restart((1,), "roll"), do.Recreate((1, 2), "no process")):
        plan = do.Plan([step])
        plan.start_none_of({2, 3} - set(getattr(step, "nodes", ())))
        assert plan.steps == [step]
        plan.start_none_of({1})
        assert plan.steps == []


def test_a_foreign_object_named_trust_is_reported_and_nodes_get_certificates() -> None:
    async def then(api: FakeApi, operator: Watching) -> None:
        api.objects["ConfigMap", "demo", "sample-trust"] = foreign("ConfigMap", "sample-trust")
        del api.objects["Secret", "demo", "sample-101-tls"]
        await again(api, operator)
        assert degraded(api) == "InTheWay"
        assert "ConfigMap sample-trust" in condition(api, "Degraded")["message"]
        assert secret(api, "sample-101-tls")["node.pem"]

    settled(then)


@pytest.mark.parametrize("name", ["sample-101-tls", "sample-trust"])
def test_an_object_without_its_labels_gets_them_again(name: str) -> None:
    kind = "ConfigMap" if name == "sample-trust" else "Secret"

    async def then(api: FakeApi, operator: Watching) -> None:
        labels = metadata(api, kind, name).pop("labels")
        data = dict(api.objects[kind, "demo", name]["data"])
        await again(api, operator)
        assert degraded(api) == ""
        assert metadata(api, kind, name)["labels"] == labels, "its owner is this cluster"
        assert api.objects[kind, "demo", name]["data"] == data

    settled(then)


@pytest.mark.parametrize("name", ["sample-101-tls", "sample-trust"])
def test_an_object_that_was_orphaned_gets_its_owner_again(name: str) -> None:
    """After `kubectl delete --cascade=orphan` it was never deleted any more."""
    kind = "ConfigMap" if name == "sample-trust" else "Secret"

    async def then(api: FakeApi, operator: Watching) -> None:
        owners = metadata(api, kind, name).pop("ownerReferences")
        await again(api, operator)
        assert metadata(api, kind, name)["ownerReferences"] == owners

    settled(then)


def test_an_object_of_a_deleted_resource_is_not_taken_over() -> None:
    async def then(api: FakeApi, operator: Watching) -> None:
        former = api.objects["Secret", "demo", "sample-7-tls"] = foreign("Secret", "sample-7-tls")
        former["metadata"] |= {"labels": metadata(api, "Secret", "sample-1-tls")["labels"]}
        former["metadata"] |= {"ownerReferences": [{"kind": "KRaftCluster", "uid": "former"}]}
        before = copy.deepcopy(former)
        await again(api, operator)
        assert api.objects["Secret", "demo", "sample-7-tls"] == before

    settled(then)


def test_an_object_without_labels_and_owner_is_not_taken_over() -> None:
    async def then(api: FakeApi, operator: Watching) -> None:
        for key in ("labels", "ownerReferences"):
            del metadata(api, "Secret", "sample-101-tls")[key]
        await again(api, operator)
        assert degraded(api) == "InTheWay"
        assert "ownerReferences" not in metadata(api, "Secret", "sample-101-tls")

    settled(then)


@pytest.mark.parametrize(("kind", "name"), [("Secret", "sample-101-tls"), ("ConfigMap", "sample-trust")])
def test_a_foreign_object_is_reported_while_the_cluster_is_paused(kind: str, name: str) -> None:
    """It was passed over, and the node would have had no certificate at its next start."""

    async def then(api: FakeApi, operator: Watching) -> None:
        theirs = api.objects[kind, "demo", name] = foreign(kind, name)
        api.objects["KRaftCluster", *KEY]["spec"]["paused"] = True
        api.writes.clear()
        await again(api, operator)
        assert degraded(api) == "InTheWay"
        assert f"{kind} {name}" in condition(api, "Degraded")["message"]
        assert api.objects[kind, "demo", name] == theirs
        assert [one for one in api.writes if one[1] == kind] == []

    settled(then)
