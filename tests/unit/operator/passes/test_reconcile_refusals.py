"""Changes that Kubernetes or the cluster refuses, or that are impossible: named, and nothing else waits."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
from typing import Any

import pytest

from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.apply.kafka import RefusedError
from kraft_operator.kube.client import ApiError
from kraft_operator.plan.model import steps as do
from kraft_operator.specs.remembered import record_of
from tests.unit.operator.fake_kubernetes import FakeApi
from tests.unit.operator.reconciling import KEY, SIX, condition, new_api, new_operator, pods_of, settle


@pytest.mark.parametrize("code", [40, 42], ids=["InvalidConfig", "InvalidRequest"])
def test_a_permanent_refusal_of_the_cluster_is_in_the_status(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)

        async def refuse(*_: Any, **__: Any) -> None:
            raise RefusedError(code, "IncrementalAlterConfigs: log.retention.ms: not a number")

        planned = do.Plan(steps=[do.SetConfig({"log.retention.ms": "x"}, ())])
        monkeypatch.setattr("kraft_operator.reconcile.plan", lambda *_: copy.deepcopy(planned))
        monkeypatch.setattr("kraft_operator.apply.kafka.carry_out", refuse)
        for _ in range(3):
            with pytest.raises(RefusedError):
                await operator.reconcile(KEY)
        reported = {one["type"]: one for one in api.objects["KRaftCluster", *KEY]["status"]["conditions"]}
        assert (reported["Degraded"]["status"], reported["Degraded"]["reason"]) == ("True", "StepRefused")
        assert "log.retention.ms" in reported["Degraded"]["message"]
        events = [one for key, one in api.objects.items() if key[0] == "Event" and one["reason"] == "StepRefused"]
        assert len(events) == 1, "reported once"
        operator.close()

    asyncio.run(main())


def _degraded(api: FakeApi) -> tuple[str, str]:
    (found,) = [one for one in api.objects["KRaftCluster", *KEY]["status"]["conditions"] if one["type"] == "Degraded"]
    return found["reason"] if found["status"] == "True" else "", found["message"]


@pytest.mark.parametrize("kind", ["Service", "Pod"])
def test_a_refusal_of_kubernetes_is_in_the_status_until_it_ends(kind: str) -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)

        def refuses(_verb: str, what: str, _name: str) -> ApiError | None:
            return ApiError(422, "Invalid", "spec: tolerations: no such operator") if what == kind else None

        api.before = refuses
        with pytest.raises(ApiError):
            for _ in range(20):
                await operator.reconcile(KEY)
                api.work()
        for _ in range(2):
            with pytest.raises(ApiError):
                await operator.reconcile(KEY)
        reason, message = _degraded(api)
        assert reason == "StepRefused"
        assert message.startswith("422 Invalid: spec: tolerations: no such operator")
        events = [one for key, one in api.objects.items() if key[0] == "Event" and one["reason"] == "StepRefused"]
        assert len(events) == 1, "reported once"
        api.before = lambda *_: None
        await settle(api, operator)
        assert _degraded(api)[0] == ""
        operator.close()

    asyncio.run(main())


def test_a_volume_that_cannot_grow_blocks_no_other_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The change cannot be withdrawn either: volumes do not shrink."""

    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)

        def refuses(_verb: str, kind: str, _name: str) -> ApiError | None:
            return ApiError(403, "Forbidden", "its class cannot resize") if kind == "PersistentVolumeClaim" else None

        api.before = refuses
        resource = api.objects["KRaftCluster", *KEY]
        resource["spec"]["nodePools"][0]["storage"]["volumes"][0]["size"] = "2Gi"
        resource["metadata"]["generation"] = 2
        del api.objects["Pod", "demo", "sample-3"]
        made: list[str] = []

        async def topics(*_: Any) -> bool:
            made.append("topics")
            return False

        monkeypatch.setattr("kraft_operator.one_pass.Pass.topics", topics)
        with pytest.raises(ApiError):
            await operator.reconcile(KEY)
        assert pods_of(api) == SIX
        assert made == ["topics"]
        assert _degraded(api) == ("StepRefused", "403 Forbidden: its class cannot resize")
        operator.close()

    asyncio.run(main())


def test_a_refused_step_keeps_the_record_of_earlier_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        record = record_of(KRaftClusterStatus.model_validate(api.objects["KRaftCluster", *KEY]["status"]))
        later = dataclasses.replace(record, managed_config=("log.retention.ms",))

        async def refuse(*_: Any, **__: Any) -> None:
            raise RefusedError(42, "no")

        planned = do.Plan(steps=[do.Remember(later, "values are about to be set"), do.SetConfig({"a": "b"}, ())])
        monkeypatch.setattr("kraft_operator.reconcile.plan", lambda *_: copy.deepcopy(planned))
        monkeypatch.setattr("kraft_operator.apply.kafka.carry_out", refuse)
        with pytest.raises(RefusedError):
            await operator.reconcile(KEY)
        assert api.objects["KRaftCluster", *KEY]["status"]["managedConfig"] == ["log.retention.ms"]
        operator.close()

    asyncio.run(main())


def test_a_format_job_that_cannot_start_is_recreated_after_a_correction() -> None:
    """Its template cannot be changed, and it waits in vain."""

    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        key = ("Job", "demo", "sample-1-format-0")
        while key not in api.objects:
            await operator.reconcile(KEY)
        waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
        labels = {"app.kubernetes.io/instance": "sample", "app.kubernetes.io/name": "kraftcluster-format"}
        api.objects["Pod", "demo", "x"] = {
            "metadata": {"labels": {**labels, "batch.kubernetes.io/job-name": key[2]}},
            "status": {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]},
        }
        await operator.reconcile(KEY)
        resource = api.objects["KRaftCluster", *KEY]
        reported = next(one for one in resource["status"]["conditions"] if one["type"] == "Progressing")
        assert "voter 1: its volume is being formatted: ImagePullBackOff: no such image" in reported["message"]
        before = api.objects[key]["metadata"]["uid"]
        resource["spec"]["image"] = "x/y:corrected"
        resource["metadata"]["generation"] = 2
        for _ in range(3):
            await operator.reconcile(KEY)
        del api.objects["Pod", "demo", "x"]
        assert api.objects[key]["metadata"]["uid"] != before
        assert api.objects[key]["spec"]["template"]["spec"]["containers"][0]["image"] == "x/y:corrected"
        await settle(api, operator)
        operator.close()

    asyncio.run(main())


def test_an_invalid_resource_is_degraded() -> None:
    async def main() -> None:
        api = new_api()
        del api.objects["KRaftCluster", *KEY]["spec"]["image"]
        operator = new_operator(api)
        for _ in range(2):
            await operator.reconcile(KEY)
            assert _degraded(api)[0] == "NoImage"
        assert [kind for _, kind, _ in api.writes] == ["Event", "KRaftCluster"], "reported once"
        api.objects["KRaftCluster", *KEY]["spec"] |= {"image": "x/y:1", "replicas": "many"}
        await operator.reconcile(KEY)
        assert _degraded(api)[0] == "NotUnderstood"
        api.objects["KRaftCluster", *KEY]["spec"]["replicas"] = 3
        await settle(api, operator)
        assert _degraded(api)[0] == ""
        operator.close()

    asyncio.run(main())


def test_unknown_racks_are_reported() -> None:
    async def main() -> None:
        api = new_api()
        api.objects["KRaftCluster", *KEY]["spec"]["rack"] = {"nodeLabel": "zone"}
        operator = new_operator(api)
        await settle(api, operator)
        assert _degraded(api)[0] == "RacksUnknown"
        assert "watch.nodes=true" in _degraded(api)[1]
        operator.close()

    asyncio.run(main())


@pytest.mark.parametrize("new", [False, True], ids=["a listener that is there", "a new listener"])
def test_a_refused_service_prevents_restarts(new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`firstNodePort: 80` restarted three controllers and stopped a broker before it was refused."""

    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        listeners = api.objects["KRaftCluster", *KEY]["spec"]["listeners"]
        if new:
            listeners.append({"name": "more", "port": 9095, "type": "NodePort", "firstNodePort": 80})
        else:
            listeners[1]["firstNodePort"] = 80
        api.objects["KRaftCluster", *KEY]["metadata"]["generation"] = 2
        restart = do.Plan(steps=[do.Restart((1,), "config")], good_ms=5000)
        planned = [restart]
        done: list[Any] = []

        async def carry_out(_client: Any, step: Any, *_: Any, **__: Any) -> None:
            done.append(step)

        def refuse(verb: str, kind: str, name: str) -> ApiError | None:
            outside = name.endswith(("-external", "-more")) and name[7].isdigit()
            invalid = verb in {"apply", "rehearse"} and kind == "Service" and outside
            return ApiError(422, "Invalid", "80 is not in the range of node ports") if invalid else None

        monkeypatch.setattr("kraft_operator.reconcile.plan", lambda *_: copy.deepcopy(planned[-1]))
        monkeypatch.setattr("kraft_operator.apply.kafka.carry_out", carry_out)
        api.before = refuse
        for one in (restart, do.Plan(steps=[do.SetConfig({"a": "b"}, ())]), restart):
            planned.append(one)
            with pytest.raises(ApiError):
                await operator.reconcile(KEY)
        assert "deletionTimestamp" not in api.objects["Pod", "demo", "sample-1"]["metadata"]
        assert len(done) == 1, "what disturbs nobody goes on"
        degraded = condition(api, "Degraded")
        assert "80 is not in the range" in degraded["message"]
        assert "until the listener is corrected" in degraded["message"]
        api.before = lambda *_: None
        await operator.reconcile(KEY)
        assert "deletionTimestamp" in api.objects["Pod", "demo", "sample-1"]["metadata"]
        operator.close()

    asyncio.run(main())


def test_a_broker_that_is_down_starts_with_the_service_that_it_has() -> None:
    """While a change of its service was refused, its pod was not made."""

    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        service = copy.deepcopy(api.objects["Service", "demo", "sample-101-external"]["spec"])
        api.objects["KRaftCluster", *KEY]["spec"]["listeners"][1]["firstNodePort"] = 80
        api.objects["KRaftCluster", *KEY]["metadata"]["generation"] = 2
        refused = ApiError(422, "Invalid", "80 is not in the range of node ports")
        api.before = lambda verb, kind, _: refused if kind == "Service" and verb in {"apply", "rehearse"} else None
        del api.objects["Pod", "demo", "sample-101"]
        for _ in range(3):
            with pytest.raises(ApiError, match="until the listener is corrected"):
                await operator.reconcile(KEY)
            api.work()
        assert pods_of(api) == SIX
        assert api.objects["Service", "demo", "sample-101-external"]["spec"] == service
        operator.close()

    asyncio.run(main())


def test_a_refused_service_does_not_block_hibernation() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        cluster = api.objects["KRaftCluster", *KEY]
        cluster["spec"] |= {"hibernated": True}
        cluster["metadata"]["generation"] = 2
        cluster["spec"]["listeners"][1]["firstNodePort"] = 80
        refused = ApiError(422, "Invalid", "80 is not in the range of node ports")
        api.before = lambda verb, kind, _: refused if (verb, kind) == ("rehearse", "Service") else None
        for _ in range(12):
            with contextlib.suppress(ApiError):
                await operator.reconcile(KEY)
            api.work()
        assert pods_of(api) == []
        operator.close()

    asyncio.run(main())


def test_a_pod_whose_image_cannot_be_pulled_degrades_the_cluster() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        waiting = {"reason": "ErrImagePull", "message": "not found"}
        api.objects["Pod", "demo", "sample-101"]["status"] = {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [{"state": {"waiting": waiting}, "restartCount": 0}],
        }
        await operator.reconcile(KEY)
        degraded = condition(api, "Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", "PodFails")
        assert degraded["message"] == "the pod of broker 101 does not start: ErrImagePull: not found"
        operator.close()

    asyncio.run(main())


def test_a_new_cluster_of_two_controllers_is_refused() -> None:
    """The rule said 1, 3 or 5; with the right to change voters, a resource passed the API server's rule."""

    async def main() -> None:
        api = new_api()
        spec = api.objects["KRaftCluster", *KEY]["spec"]
        spec["nodePools"][0]["replicas"] = 2
        spec["quorum"]["allowVoterChanges"] = True
        operator = new_operator(api)
        for _ in range(3):
            await operator.reconcile(KEY)
        assert not [key for key in api.objects if key[0] in {"Pod", "Job", "PersistentVolumeClaim"}]
        degraded = condition(api, "Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", "EvenQuorum")
        spec["nodePools"][0]["replicas"] = 3
        await settle(api, operator)
        operator.close()

    asyncio.run(main())


def test_a_wait_backs_off_and_a_new_wait_is_checked_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        waits = ["a replica catches up"]
        monkeypatch.setattr("kraft_operator.reconcile.plan", lambda *_: do.Plan(waits=list(waits)))
        monkeypatch.setattr("kraft_operator.patience.UNKNOWN", frozenset())
        assert [await operator.reconcile(KEY) for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
        waits[0] = "another one does"
        assert await operator.reconcile(KEY) == 0.5
        operator.close()

    asyncio.run(main())


def test_a_pass_that_takes_too_long_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)

        async def never(*_: Any) -> None:
            await asyncio.sleep(600)

        monkeypatch.setattr("kraft_operator.reconcile.PASS_S", 0.01)
        monkeypatch.setattr(api, "get", never)
        with pytest.raises(ApiError, match="takes longer"):
            await operator.reconcile(KEY)
        operator.close()

    asyncio.run(main())
