"""Whole passes over clusters whose listeners outside are behind an Ingress or a Route."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraft_operator.kube.client import ApiError
from tests.unit.operator.fake_kubernetes import FakeApi, Watching
from tests.unit.operator.reconciling import KEY, SIX, condition, new_api, new_operator, pods_of, settle

INGRESS = {
    "name": "out",
    "port": 9096,
    "type": "Ingress",
    "hostTemplate": "broker-{node.id}.example.com",
    "bootstrap": {"host": "kafka.example.com"},
}
BROKERS = (101, 102, 103)
Object = dict[str, Any]


def api_with(*listeners: Object) -> FakeApi:
    api = new_api()
    api.objects["KRaftCluster", *KEY]["spec"] |= {
        "security": {"tls": "Enabled"},
        "listeners": [{"name": "tls", "port": 9093}, *listeners],
    }
    return api


def run(api: FakeApi, then: Callable[[Watching], Awaitable[None]]) -> None:
    async def main() -> None:
        operator = new_operator(api)
        try:
            await then(operator)
        finally:
            operator.close()

    asyncio.run(main())


async def again(api: FakeApi, operator: Watching, spec: Object | None = None) -> None:
    if spec is not None:
        resource = api.objects["KRaftCluster", *KEY]
        resource["spec"] |= spec
        resource["metadata"]["generation"] += 1
    operator.touched(KEY)
    await operator.reconcile(KEY)


def fronts(api: FakeApi, kind: str = "Ingress") -> list[str]:
    return sorted(name for found, _, name in api.objects if found == kind)


def test_every_broker_has_an_ingress_before_its_pod_advertises_the_name() -> None:
    api = api_with(INGRESS)

    async def then(operator: Watching) -> None:
        await settle(api, operator)
        assert fronts(api) == ["sample-101-out", "sample-102-out", "sample-103-out", "sample-out"]
        for node in BROKERS:
            command = api.objects["Pod", "demo", f"sample-{node}"]["spec"]["containers"][0]["command"]
            (advertised,) = [word for word in command if word.startswith("advertised.listeners=")]
            assert advertised.endswith(f",OUT://broker-{node}.example.com:443")
        await again(api, operator)
        status = api.objects["KRaftCluster", *KEY]["status"]["listeners"]
        (out,) = [one for one in status if one["name"] == "out"]
        assert out["bootstrapServers"] == "kafka.example.com:443"
        assert out["brokers"] == [{"node": i, "address": f"broker-{i}.example.com:443"} for i in BROKERS]
        api.writes.clear()
        await again(api, operator)
        assert [one for one in api.writes if one[1] in {"Ingress", "Service"}] == []

    run(api, then)


def test_a_removed_listener_takes_its_ingresses_along() -> None:
    api = api_with(INGRESS)

    async def then(operator: Watching) -> None:
        await settle(api, operator)
        await again(api, operator, {"listeners": [{"name": "tls", "port": 9093}]})
        assert fronts(api) == []
        assert [name for kind, _, name in api.objects if kind == "Service" and name.endswith("-out")] == []

    run(api, then)


def test_an_ingress_goes_when_its_listener_gets_another_type() -> None:
    api = api_with(INGRESS)

    async def then(operator: Watching) -> None:
        await settle(api, operator)
        other = {"name": "out", "port": 9096, "type": "NodePort"}
        await again(api, operator, {"listeners": [{"name": "tls", "port": 9093}, other]})
        assert fronts(api) == []

    run(api, then)


def test_a_changed_name_reaches_the_ingress_with_the_restart_of_its_broker() -> None:
    api = api_with(INGRESS)

    async def then(operator: Watching) -> None:
        await settle(api, operator)
        changed = {**INGRESS, "brokers": [{"node": 102, "host": "two.example.com"}]}
        await again(api, operator, {"listeners": [{"name": "tls", "port": 9093}, changed]})
        hosts = {
            name: api.objects["Ingress", "demo", name]["spec"]["rules"][0]["host"]
            for name in ("sample-101-out", "sample-102-out")
        }
        # Until its restart, broker 102 advertises its former name, which must still lead to it.
        assert hosts == {"sample-101-out": "broker-101.example.com", "sample-102-out": "broker-102.example.com"}
        nodes = api.objects["KRaftCluster", *KEY]["status"]["nodes"]
        assert {one["id"] for one in nodes if "addresses" in one["needsRestart"]} == {102}

    run(api, then)


def test_a_deleted_ingress_comes_back() -> None:
    api = api_with(INGRESS)

    async def then(operator: Watching) -> None:
        await settle(api, operator)
        del api.objects["Ingress", "demo", "sample-102-out"]
        await again(api, operator, {"paused": False, "replicas": 3})  # a change makes the pass check shared objects
        assert "sample-102-out" in fronts(api)

    run(api, then)


def test_a_broker_waits_for_the_name_that_openshift_assigns() -> None:
    api = api_with({"name": "out", "port": 9096, "type": "Route"})
    assigned: set[str] = set()

    async def then(operator: Watching) -> None:
        for _ in range(6):
            await operator.reconcile(KEY)
            api.work()
        assert pods_of(api) == ["sample-1", "sample-2", "sample-3"]
        for name in fronts(api, "Route"):
            api.objects["Route", "demo", name]["spec"]["host"] = f"{name}-demo.apps.example.com"
            assigned.add(name)
        await settle(api, operator)
        await again(api, operator)
        status = api.objects["KRaftCluster", *KEY]["status"]["listeners"]
        (out,) = [one for one in status if one["name"] == "out"]
        assert out["brokers"][0] == {"node": 101, "address": "sample-101-out-demo.apps.example.com:443"}
        assert out["bootstrapServers"] == "sample-out-demo.apps.example.com:443"

    run(api, then)
    assert "sample-out" in assigned


@pytest.mark.parametrize(("status", "text"), [(404, "Routes are of OpenShift"), (403, "no right to the kind Route")])
def test_routes_that_kubernetes_refuses_are_reported_and_stop_no_broker(status: int, text: str) -> None:
    api = api_with()

    async def then(operator: Watching) -> None:
        await settle(api, operator)
        refuse(api, status)
        changed = {"name": "out", "port": 9096, "type": "Route", "hostTemplate": "b{node.id}.example.com"}
        for _ in range(3):
            with pytest.raises(ApiError):
                await again(api, operator, {"listeners": [{"name": "tls", "port": 9093}, changed]})
        degraded = condition(api, "Degraded")
        assert degraded["status"] == "True"
        assert text in degraded["message"]
        assert pods_of(api) == SIX

    run(api, then)


def refuse(api: FakeApi, status: int) -> None:
    """Kubernetes knows no Routes, or the operator has no right to them."""
    listed = api.list

    async def list_(kind: str, *rest: Any, **named: Any) -> list[Object]:
        if kind == "Route":
            raise ApiError(status, "NotFound" if status == 404 else "Forbidden", "routes.route.openshift.io")
        return await listed(kind, *rest, **named)

    api.list = list_  # type: ignore[method-assign]
    api.before = lambda _, kind, __: ApiError(status, "Refused", "routes") if kind == "Route" else None
