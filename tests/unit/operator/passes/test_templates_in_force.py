"""A node that is down while its pool's template cannot be used starts with the template before."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraft_operator.apply import record as records
from kraft_operator.apply.grants import ALLOWED
from kraft_operator.kube.client import ApiError
from tests.unit.operator.fake_kubernetes import FakeApi
from tests.unit.operator.reconciling import KEY, SIX, condition, new_api, new_operator, pods_of, settle

RECORD = ("ConfigMap", "demo", "sample-record")
MISSING = "no PriorityClass with name missing was found"
SECRET = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}}]


class Admission(FakeApi):
    """An API server that refuses pods of a missing priority class, in a dry run and in earnest."""

    @staticmethod
    def _check(body: dict[str, Any]) -> None:
        if body["kind"] == "Pod" and body["spec"].get("priorityClassName") == "missing":
            raise ApiError(403, "Forbidden", MISSING)

    async def create(self, body: dict[str, Any]) -> dict[str, Any]:
        self._check(body)
        return await super().create(body)

    async def apply(self, body: dict[str, Any], *, rehearse: bool = False) -> dict[str, Any]:
        self._check(body)
        return await super().apply(body, rehearse=rehearse)


def _admission() -> Admission:
    api = Admission()
    api.objects |= new_api().objects
    return api


def change(api: FakeApi, **pod: Any) -> None:
    """Change fields of the brokers' template."""
    resource = api.objects["KRaftCluster", *KEY]
    resource["spec"]["nodePools"][1]["pod"] |= pod
    resource["metadata"]["generation"] += 1


def _plan(api: FakeApi) -> list[str]:
    return list(api.objects["KRaftCluster", *KEY]["status"]["plan"])


def needs_restart(api: FakeApi) -> list[int]:
    return [one["id"] for one in api.objects["KRaftCluster", *KEY]["status"]["nodes"] if one["needsRestart"]]


def on_a_settled_cluster(
    story: Callable[[Admission, Callable[[], Awaitable[None]]], Awaitable[None]], *, dies: bool = False
) -> None:
    """Run a story with an API server, and a function that runs passes; `dies`: each by an operator without memory."""

    async def main() -> None:
        api = _admission()
        made = [new_operator(api)]
        await settle(api, made[0])

        async def passes() -> None:
            if dies:
                made.append(new_operator(api))
            for _ in range(4):
                await made[-1].reconcile(KEY)
                api.work()

        await passes()
        await story(api, passes)
        for operator in made:
            operator.close()

    asyncio.run(main())


@pytest.mark.parametrize("dies", [False, True], ids=["one operator", "the operator dies"])
def test_a_node_that_is_down_starts_with_the_template_before(dies: bool) -> None:
    """Its pod could not be made until the template was corrected: the check was for the next restart alone."""

    async def story(api: Admission, passes: Callable[[], Awaitable[None]]) -> None:
        change(api, annotations={"a/b": "1"})
        await passes()
        del api.objects["Pod", "demo", "sample-101"]
        change(api, priorityClassName="missing", annotations={"a/b": "2"})
        await passes()
        assert pods_of(api) == SIX
        pod = api.objects["Pod", "demo", "sample-101"]
        assert "priorityClassName" not in pod["spec"]
        assert pod["metadata"]["annotations"]["a/b"] == "1", "the last template that was accepted"
        reported = condition(api, "Degraded")
        assert reported["status"] == "True"
        assert any(f"StepRefused: 403 Forbidden: {MISSING}" in line for line in _plan(api))
        for text in (MISSING, "until nodePools brokers is corrected", "starts with the template before"):
            assert text in reported["message"]
        assert needs_restart(api) == [102, 103], "no node restarts for the refused template"
        assert "deletionTimestamp" not in api.objects["Pod", "demo", "sample-102"]["metadata"]
        change(api, priorityClassName=None)
        api.objects["KRaftCluster", *KEY]["spec"]["nodePools"][1]["pod"].pop("priorityClassName")
        await passes()
        assert MISSING not in condition(api, "Degraded")["message"]
        assert needs_restart(api) == [101, 102, 103], "the correction goes on from there"

    on_a_settled_cluster(story, dies=dies)


def test_a_template_without_its_grant_leaves_the_template_before_in_force() -> None:
    async def story(api: Admission, passes: Callable[[], Awaitable[None]]) -> None:
        del api.objects["Pod", "demo", "sample-101"]
        change(api, env=SECRET)
        await passes()
        assert pods_of(api) == SIX
        assert not any(one["name"] == "A" for one in _container(api, 101)["env"])
        assert any(line.startswith("SecretNotAllowed: ") and "administrator allows it" in line for line in _plan(api))
        assert needs_restart(api) == []
        api.objects["ServiceAccount", "demo", "kraft-node"] = {
            "metadata": {"name": "kraft-node", "labels": {}},
            "secrets": [{"name": "keys"}],
        }
        await passes()
        assert needs_restart(api) == [101, 102, 103]

    on_a_settled_cluster(story)


def _container(api: FakeApi, node: int) -> dict[str, Any]:
    return dict(api.objects["Pod", "demo", f"sample-{node}"]["spec"]["containers"][0])


def test_a_template_before_whose_grant_was_withdrawn_is_not_used() -> None:
    async def story(api: Admission, passes: Callable[[], Awaitable[None]]) -> None:
        account = {"metadata": {"name": "mine", "labels": {ALLOWED: "allowed"}}}
        api.objects["ServiceAccount", "demo", "mine"] = account
        change(api, serviceAccountName="mine")
        await passes()
        account["metadata"]["labels"] = {}
        change(api, serviceAccountName="other")
        del api.objects["Pod", "demo", "sample-101"]
        await passes()
        assert "sample-101" not in pods_of(api)
        assert condition(api, "Degraded")["reason"] == "ServiceAccountNotAllowed"

    on_a_settled_cluster(story)


def test_a_first_template_that_is_refused_has_nothing_before_it() -> None:
    async def main() -> None:
        api = _admission()
        change(api, priorityClassName="missing")
        operator = new_operator(api)
        with pytest.raises(ApiError, match=MISSING):
            for _ in range(20):
                await operator.reconcile(KEY)
                api.work()
        assert [name for name in pods_of(api) if "-10" in name] == []
        assert "template before" not in condition(api, "Degraded")["message"]
        operator.close()

    asyncio.run(main())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"brokers": 1}', '{"brokers": {"pod": {"env": 7}, "resources": {}}}'])
def test_a_stored_template_that_cannot_be_read_does_no_harm(text: str) -> None:
    async def story(api: Admission, passes: Callable[[], Awaitable[None]]) -> None:
        assert set(json.loads(api.objects[RECORD]["data"]["templates"])) == {"controllers", "brokers"}
        change(api, priorityClassName="missing")
        api.objects[RECORD]["data"]["templates"] = text
        await passes()
        assert MISSING in condition(api, "Degraded")["message"]
        assert "template before" not in condition(api, "Degraded")["message"]

    on_a_settled_cluster(story, dies=True)


def test_templates_that_are_too_large_leave_the_record_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(api: Admission, passes: Callable[[], Awaitable[None]]) -> None:
        monkeypatch.setattr(records, "TEMPLATES_CHARS_MAX", 100)
        change(api, env=[{"name": "A", "value": "x" * 100}])
        await passes()
        assert api.objects[RECORD]["data"]["templates"] == ""
        writes = len(api.writes)
        await passes()
        assert [one for one in api.writes[writes:] if one[2] == RECORD[2]] == []

    on_a_settled_cluster(story)


@pytest.mark.parametrize("field", ["hibernated", "paused"])
def test_a_template_that_was_not_tried_is_not_accepted(field: str) -> None:
    async def story(api: Admission, passes: Callable[[], Awaitable[None]]) -> None:
        before = api.objects[RECORD]["data"]["templates"]
        change(api, priorityClassName="missing")
        api.objects["KRaftCluster", *KEY]["spec"][field] = True
        await passes()
        assert api.objects[RECORD]["data"]["templates"] == before

    on_a_settled_cluster(story)
