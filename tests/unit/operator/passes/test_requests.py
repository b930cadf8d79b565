"""Replacements that annotations request: how they are read, and that a request ends with its replacement."""

from __future__ import annotations

import asyncio
import json

import pytest

from kraft_operator.plan.model.wanted import ReplacementRequest
from kraft_operator.specs.planner_input import REPLACE, request_text, requests_of
from tests.unit.operator.planner.test_record import DONE, RECORD
from tests.unit.operator.reconciling import KEY, new_api, new_operator, settle


def test_only_annotations_of_requests_are_read() -> None:
    item = {"name": "host", "node": 3, "by": "NewId", "accept": ["MetadataPause", "DataLoss"]}
    asked, wrong = requests_of(
        {REPLACE + "host": request_text(item), REPLACE + "disk": " 101  EmptyDisk ", "kraftcluster.io/skip": "3"}
    )
    risks = frozenset({"MetadataPause", "DataLoss"})
    assert asked == (ReplacementRequest("disk", 101, "EmptyDisk"), ReplacementRequest("host", 3, "NewId", risks))
    assert not wrong


@pytest.mark.parametrize("text", ["", "3", "three EmptyDisk", "3 emptydisk", "3 EmptyDisk Loss", "-3 EmptyDisk"])
def test_an_unreadable_request_is_named_with_its_annotation(text: str) -> None:
    asked, wrong = requests_of({REPLACE + "disk": text})
    assert not asked
    assert REPLACE + "disk" in wrong[0]
    assert repr(text) in wrong[0]


def test_only_a_finished_request_is_removed() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        await operator.reconcile(KEY)
        record = json.loads(api.objects[RECORD]["data"]["record"])
        api.objects[RECORD]["data"]["record"] = json.dumps({**record, "replacements": [DONE]})
        node = DONE["node"]
        annotations = {REPLACE + "old": f"{node} EmptyDisk", REPLACE + "open": "3 EmptyDisk", "mine": "x"}
        api.objects["KRaftCluster", *KEY]["metadata"]["annotations"] = annotations
        await operator.reconcile(KEY)
        assert api.objects["KRaftCluster", *KEY]["metadata"]["annotations"].keys() == {REPLACE + "open", "mine"}
        reused = {REPLACE + "old": "101 EmptyDisk"}
        api.objects["KRaftCluster", *KEY]["metadata"]["annotations"] = reused
        await operator.reconcile(KEY)
        resource = api.objects["KRaftCluster", *KEY]
        assert resource["metadata"]["annotations"] == reused, "it was never carried out"
        reported = {one["type"]: one for one in resource["status"]["conditions"]}["Degraded"]
        assert reported["reason"] == "ReplacementRefused"
        operator.close()

    asyncio.run(main())
