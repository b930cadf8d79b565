"""A cluster without work rests: no request to the API server until a watch or its nodes report a change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraft_operator import reconcile
from kraft_operator.plan.model import steps as do
from tests.unit.operator.fake_kubernetes import FakeApi, Watching
from tests.unit.operator.reconciling import KEY, new_api, new_operator, settle


async def _rested() -> tuple[FakeApi, Watching]:
    """A settled cluster after a whole pass that wrote nothing."""
    api = new_api()
    api.objects["KRaftCluster", *KEY]["spec"]["metrics"]["enabled"] = False  # no process can be asked here
    operator = new_operator(api)
    await settle(api, operator)
    for _ in range(4):
        await operator.reconcile(KEY)
    return api, operator


@pytest.fixture(autouse=True)
def without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of the API server in memory have no addresses: no node is asked, and everything counts as known."""
    monkeypatch.setattr("kraft_operator.observe.status.Statuses.whole", lambda *_: True)


def test_a_resting_cluster_costs_no_request() -> None:
    async def main() -> None:
        api, operator = await _rested()
        api.reads = 0
        api.writes.clear()
        for _ in range(5):
            assert await operator.reconcile(KEY) is not None
        assert (api.reads, api.writes) == (0, [])
        operator.close()

    asyncio.run(main())


def test_a_change_reported_by_a_watch_ends_the_rest() -> None:
    async def main() -> None:
        api, operator = await _rested()
        api.objects["Pod", "demo", "sample-102"]["status"]["phase"] = "Failed"
        api.reads = 0
        await operator.reconcile(KEY)
        assert api.reads
        assert ("delete", "Pod", "sample-102") in api.writes
        operator.close()

    asyncio.run(main())


def test_all_objects_are_read_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator = await _rested()
        memory = operator._memories[KEY]
        assert memory.rest is not None
        monkeypatch.setattr(operator, "_clock", lambda: memory.rest.until + 1 if memory.rest is not None else 0.0)
        api.reads = 0
        await operator.reconcile(KEY)
        assert api.reads
        operator.close()

    asyncio.run(main())


def test_a_step_is_planned_with_freshly_read_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step relies on what a watch may not have reported yet."""

    async def main() -> None:
        api, operator = await _rested()
        planned, asked = reconcile.plan, []

        def plan(*words: Any) -> do.Plan:
            asked.append(api.reads)
            return do.Plan(steps=[do.Recreate((101,), "x")]) if len(asked) == 1 else planned(*words)

        monkeypatch.setattr(reconcile, "plan", plan)
        api.reads = 0
        api.writes.clear()
        await operator.reconcile(KEY)
        assert asked[0] == 0
        assert asked[1] > 0
        assert not [one for one in api.writes if one[0] == "delete"], "the second plan counts"
        operator.close()

    asyncio.run(main())


def test_a_change_during_a_pass_is_not_missed() -> None:
    async def main() -> None:
        api, operator = await _rested()
        operator.touched(KEY)
        listed = api.list

        async def told_meanwhile(kind: str, namespace: str | None, selector: str = "", **named: Any) -> Any:
            found = await listed(kind, namespace, selector, **named)
            if kind == "Pod":
                operator.touched(KEY)
            return found

        api.list = told_meanwhile  # type: ignore[method-assign,assignment]
        await operator.reconcile(KEY)
        assert operator._memories[KEY].rest is None
        operator.close()

    asyncio.run(main())


def test_a_change_while_topics_are_read_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster rested for twenty minutes with the earlier objects."""

    async def main() -> None:
        _, operator = await _rested()
        operator.touched(KEY)

        async def told_meanwhile(*_: Any) -> Any:
            operator.touched(KEY)
            return {}

        monkeypatch.setattr(operator, "_topics", told_meanwhile)
        await operator.reconcile(KEY)
        assert operator._memories[KEY].rest is None
        operator.close()

    asyncio.run(main())


def test_a_stopping_operator_starts_no_step() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        operator.stop()
        for _ in range(3):
            await operator.reconcile(KEY)
        made = [kind for verb, kind, _ in api.writes if verb == "create" and kind != "Event"]
        assert not {"Pod", "Job", "PersistentVolumeClaim"} & {*made}
        operator.close()

    asyncio.run(main())


def test_a_change_during_the_first_reads_prevents_the_rest() -> None:
    """The objects may be older than the change."""

    async def main() -> None:
        api, operator = await _rested()
        read = api.list

        async def changes_meanwhile(kind: str, *rest: Any, **named: Any) -> list[dict[str, Any]]:
            found = await read(kind, *rest, **named)
            if kind == "KRaftTopic":
                operator.touched(KEY)
            return found

        operator.touched(KEY)
        api.list = changes_meanwhile  # type: ignore[method-assign,assignment]
        await operator.reconcile(KEY)
        assert operator._memories[KEY].rest is None
        api.list = read  # type: ignore[method-assign]
        await operator.reconcile(KEY)
        assert operator._memories[KEY].rest is not None
        operator.close()

    asyncio.run(main())
