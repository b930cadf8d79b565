"""Passes of the reconciler against an API server in memory, from an applied resource to running pods, without Kafka.

After any refusal and any death of the operator, later passes reach the goal; then nothing is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import Any

import pytest

from kraft_operator.handlers import OBJECTS
from kraft_operator.kube.client import ApiError
from kraft_operator.specs.storage import FORMATTED
from tests.unit.operator.fake_kubernetes import Crash
from tests.unit.operator.reconciling import KEY, condition, new_api, new_operator, settle


def test_an_applied_resource_becomes_pods_each_formatted_once() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        made = Counter(kind for verb, kind, _ in api.writes if verb == "create")
        assert (made["Pod"], made["Job"], made["PersistentVolumeClaim"]) == (6, 6, 6)
        assert not [key for key in api.objects if key[0] == "Job"], "done with, cleared away"
        status = api.objects["KRaftCluster", *KEY]["status"]
        assert [node["id"] for node in status["nodes"]] == [1, 2, 3, 101, 102, 103]
        assert status["voters"] == [1, 2, 3]
        operator.close()

    asyncio.run(main())


def test_a_settled_cluster_is_not_written_to() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        for _ in range(3):
            await operator.reconcile(KEY)
        for again in (operator, new_operator(api)):
            api.writes.clear()
            for _ in range(3):
                await again.reconcile(KEY)
            assert api.writes == []
            again.close()

    asyncio.run(main())


def test_volumes_grow_to_the_specified_size_in_its_own_notation() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        api.objects["KRaftCluster", *KEY]["spec"]["nodePools"][0]["storage"]["volumes"][0]["size"] = "2Gi"
        api.writes.clear()
        for _ in range(2):
            await operator.reconcile(KEY)
        grown = [name for verb, kind, name in api.writes if (verb, kind) == ("patch", "PersistentVolumeClaim")]
        assert sorted(grown) == ["data-sample-1-0", "data-sample-2-0", "data-sample-3-0"], "each once"
        for name in grown:
            claim = api.objects["PersistentVolumeClaim", "demo", name]
            assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"
        operator.close()

    asyncio.run(main())


TOPIC_DEFAULTS: dict[str, Any] = {"partitions": 1, "config": {}, "deletionPolicy": "Keep"}


"""As the API server fills them in."""


def test_a_recreated_claim_is_formatted_again() -> None:
    """The finished job of the deleted claim counted for the new claim: an empty volume was marked as formatted."""

    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        while not any(kind == "Job" for kind, *_ in api.objects):
            await operator.reconcile(KEY)
        name = next(
            name for kind, _, name in sorted(api.objects) if kind == "PersistentVolumeClaim" and "-101-" in name
        )
        api.work()  # all jobs end
        assert api.objects.pop(("PersistentVolumeClaim", KEY.namespace, name))
        before = {one["metadata"]["uid"] for (kind, *_), one in api.objects.items() if kind == "Job"}
        jobs, formatted = dict[str, set[str]](), set[str]()
        for _ in range(20):
            await operator.reconcile(KEY)
            for (kind, _, other), one in api.objects.items():
                if kind == "Job" and "-101-" in other and one["metadata"]["uid"] not in before:
                    jobs.setdefault(one["metadata"]["uid"], set()).add(other)
                if (
                    kind == "PersistentVolumeClaim"
                    and other == name
                    and FORMATTED in one["metadata"].get("annotations", {})
                ):
                    formatted.add(name)
                    assert jobs, "the new claim is marked as formatted, and no job has formatted it"
            api.work()
        assert formatted
        operator.close()

    asyncio.run(main())


def test_a_paused_cluster_is_left_alone() -> None:
    async def main() -> None:
        api = new_api()
        api.objects["KRaftCluster", *KEY]["spec"]["paused"] = True
        operator = new_operator(api)
        await operator.reconcile(KEY)
        assert {(verb, kind) for verb, kind, _ in api.writes} == {("patch", "KRaftCluster"), ("create", "Event")}
        operator.close()

    asyncio.run(main())


def test_a_deleted_cluster_is_forgotten() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await operator.reconcile(KEY)
        del api.objects["KRaftCluster", *KEY]
        assert await operator.reconcile(KEY) is None
        assert not operator._memories

    asyncio.run(main())


def test_a_broker_that_advertises_an_old_address_is_not_ready() -> None:
    """Ready was True for 41 s while clients could not reach it; services were not watched."""

    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        service = api.objects["Service", "demo", "sample-102-external"]
        service["spec"]["ports"][0]["nodePort"] = 32_001
        await operator.reconcile(KEY)
        ready = condition(api, "Ready")
        assert ready["status"] == "False"
        assert "broker 102: advertises external=$(HOST_IP):" in ready["message"]
        assert "32001" in ready["message"]
        operator.close()

    asyncio.run(main())
    assert ("", "v1", "services") in OBJECTS


@pytest.mark.parametrize("after", range(1, 60, 3))
def test_the_operator_may_die_after_any_write(after: int) -> None:
    async def main() -> None:
        api = new_api()
        count = 0

        def dies(*_: str) -> ApiError | None:
            nonlocal count
            count += 1
            if count == after:
                raise Crash
            return None

        api.after = dies
        first = new_operator(api)
        try:
            await settle(api, first)
        except Crash:
            api.work()
        first.close()
        api.after = lambda *_: None
        second = new_operator(api)
        await settle(api, second)
        second.close()
        formats = Counter(name for verb, kind, name in api.writes if (verb, kind) == ("create", "Job"))
        assert max(formats.values()) <= 1, "no volume is formatted twice"

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(4))
def test_a_cluster_settles_after_storms_of_refusals(seed: int) -> None:
    """About every third write is refused, before or after it took effect."""

    async def main() -> None:
        api = new_api()
        rng = random.Random(seed)
        refusals = [ApiError(409, "Conflict", "storm"), ApiError(429, "", "storm"), ApiError(500, "", "storm")]

        def storm(*_: str) -> ApiError | None:
            return rng.choice(refusals) if rng.random() < 0.3 else None

        api.before = api.after = storm
        operator = new_operator(api)
        for _ in range(30):
            with contextlib.suppress(ApiError):
                await operator.reconcile(KEY)
            api.work()
        api.before = api.after = lambda *_: None
        await settle(api, operator)
        assert len({one["metadata"]["uid"] for (kind, *_), one in api.objects.items() if kind == "Pod"}) == 6
        operator.close()

    asyncio.run(main())
