"""The record has its own object: a resource that is applied again, or restored without status, continues."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kraft_operator.kube.client import ApiError
from kraft_operator.reconcile import Reconciler
from tests.unit.operator.fake_kubernetes import FakeApi
from tests.unit.operator.reconciling import KEY, condition, new_api, new_operator, new_resource, settle

RECORD = ("ConfigMap", KEY.namespace, "sample-record")
DONE = {"name": "old", "node": 2, "by": "EmptyDisk", "disk": 1, "done": True, "accept": ["DataLoss"]}


async def _settled(api: FakeApi) -> Reconciler:
    operator = new_operator(api)
    await settle(api, operator)
    await operator.reconcile(KEY)
    return operator


def _record(api: FakeApi) -> dict[str, Any]:
    return dict(json.loads(api.objects[RECORD]["data"]["record"]))


def _applied_anew(api: FakeApi) -> None:
    resource = new_resource()
    resource["metadata"]["uid"] = "v"
    resource["spec"]["replacements"] = [{"name": "old", "node": 2, "by": "EmptyDisk", "accept": ["DataLoss"]}]
    api.objects["KRaftCluster", *KEY] = resource


def test_a_reapplied_resource_continues_with_its_record() -> None:
    async def main() -> None:
        api = new_api()
        operator = await _settled(api)
        before = _record(api)
        api.objects[RECORD]["data"]["record"] = json.dumps({**before, "replacements": [DONE], "retiredIds": [7]})
        _applied_anew(api)
        await operator.reconcile(KEY)
        status = api.objects["KRaftCluster", *KEY]["status"]
        assert status["clusterId"] == before["clusterId"]
        assert [(one["name"], one["done"]) for one in status["replacements"]] == [("old", True)]
        assert status["retiredIds"] == [7]
        operator.close()

    asyncio.run(main())


def test_the_record_of_an_older_operator_moves_from_the_status() -> None:
    async def main() -> None:
        api = new_api()
        operator = await _settled(api)
        before = _record(api)
        del api.objects[RECORD]
        await operator.reconcile(KEY)
        assert _record(api) == before
        operator.close()

    asyncio.run(main())


def test_the_record_outlives_the_resource_like_the_volumes() -> None:
    async def main() -> None:
        api = new_api()
        operator = await _settled(api)
        assert not api.objects[RECORD]["metadata"].get("ownerReferences")
        resource = api.objects["KRaftCluster", *KEY]
        for pool in resource["spec"]["nodePools"]:
            pool["storage"]["deletionPolicy"] = "Delete"
        await operator.reconcile(KEY)
        assert [one["uid"] for one in api.objects[RECORD]["metadata"]["ownerReferences"]] == ["u"]
        resource["spec"]["nodePools"][0]["storage"]["deletionPolicy"] = "Keep"
        await operator.reconcile(KEY)
        assert not api.objects[RECORD]["metadata"]["ownerReferences"]
        operator.close()

    asyncio.run(main())


def test_a_record_owned_by_a_deleted_resource_is_not_adopted() -> None:
    async def main() -> None:
        api = new_api()
        operator = await _settled(api)
        api.objects[RECORD]["metadata"]["ownerReferences"] = [{"uid": "former", "kind": "KRaftCluster"}]
        _applied_anew(api)
        api.writes.clear()
        await operator.reconcile(KEY)
        assert condition(api, "Degraded")["reason"] == "RecordLeaves"
        assert {kind for _, kind, _ in api.writes} == {"Event", "KRaftCluster"}
        operator.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"version": "2", "record": "{}"}, "version '2'"),
        ({"version": "1", "record": "{"}, "sample-record"),
        ({"version": "1", "record": '{"more": 1}'}, "more"),
        ({}, "version None"),
    ],
)
def test_an_unreadable_record_stops_all_steps_and_is_named(data: dict[str, str], said: str) -> None:
    async def main() -> None:
        api = new_api()
        operator = await _settled(api)
        api.objects[RECORD]["data"] = data
        del api.objects["Pod", "demo", "sample-3"]
        api.writes.clear()
        await operator.reconcile(KEY)
        assert condition(api, "Degraded")["reason"] == "RecordNotUnderstood"
        assert said in condition(api, "Degraded")["message"]
        assert {kind for _, kind, _ in api.writes} == {"Event", "KRaftCluster"}
        operator.close()

    asyncio.run(main())


def test_two_writers_of_the_record_do_not_overwrite_each_other() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)

        def other(verb: str, kind: str, name: str) -> None:
            if (verb, kind, name) == ("patch", "ConfigMap", "sample-record"):
                api.objects[RECORD]["metadata"]["resourceVersion"] = "theirs"

        with pytest.raises(ApiError) as refused:
            for _ in range(10):
                api.before = other
                await operator.reconcile(KEY)
                api.work()
        assert refused.value.status == 409
        operator.close()

    asyncio.run(main())


def test_the_record_is_not_deleted_as_a_leftover() -> None:
    async def main() -> None:
        api = new_api()
        operator = await _settled(api)
        api.objects["KRaftCluster", *KEY]["metadata"]["generation"] = 2
        await operator.reconcile(KEY)
        assert RECORD in api.objects
        operator.close()

    asyncio.run(main())
