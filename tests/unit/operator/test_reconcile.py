"""Passes of the reconciler against an API server in memory, as far as they go without Kafka: from an applied resource
to pods that run. Whatever is refused, and wherever the operator dies, the next ones get there; then nothing is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import itertools
import random
import time
from collections import Counter
from typing import Any

import pytest
import yaml

from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.events import Events
from kraft_operator.handlers import OBJECTS
from kraft_operator.kafka.client import Address, RefusedError
from kraft_operator.kube.client import ApiError
from kraft_operator.metrics import Metrics
from kraft_operator.plan import steps as do
from kraft_operator.plan.topics import TopicSeen, TopicsSeen
from kraft_operator.reconcile import Key, Reconciler
from kraft_operator.specs.pods import config_name
from kraft_operator.specs.remembered import record_of
from tests.unit.operator.fake_kubernetes import Crash, FakeApi
from tests.unit.operator.sample import ROOT

KEY = Key("demo", "sample")


def _resource() -> dict[str, Any]:
    """As the API server has it, with the defaults of the definition."""
    document = yaml.safe_load((ROOT / "deploy/samples/kraftcluster.yaml").read_text())
    spec = KRaftClusterSpec.model_validate({**document["spec"], "podDisruptionBudget": {"enabled": True}})
    document["spec"] = spec.model_dump(by_alias=True, exclude_none=True)
    document["metadata"] |= {"namespace": "demo", "uid": "u", "generation": 1, "resourceVersion": "0"}
    return dict(document)


def _api() -> FakeApi:
    api = FakeApi()
    api.objects["KRaftCluster", *KEY] = _resource()
    return api


def _operator(api: Any) -> Reconciler:
    """Its time passes with each look: what is as old as the last write, to the millisecond, is not trusted."""
    looks = itertools.count()
    return Reconciler(api, Events(api, "test"), Metrics(), clock=lambda: time.monotonic() + next(looks) / 500)


def _condition(api: FakeApi, kind: str) -> dict[str, Any]:
    found = api.objects["KRaftCluster", *KEY]["status"]["conditions"]
    return next(dict(one) for one in found if one["type"] == kind)


def _pods(api: FakeApi) -> list[str]:
    return [name for kind, _, name in sorted(api.objects) if kind == "Pod"]


SIX = ["sample-1", "sample-101", "sample-102", "sample-103", "sample-2", "sample-3"]


async def _settle(api: FakeApi, operator: Reconciler, passes: int = 40) -> None:
    for _ in range(passes):
        if _pods(api) == SIX and all("status" in one for (kind, *_), one in api.objects.items() if kind == "Pod"):
            return
        await operator.reconcile(KEY)
        api.work()
    raise AssertionError(f"only {_pods(api)}: {api.objects['KRaftCluster', *KEY].get('status')}")


def test_an_applied_resource_becomes_pods_each_formatted_once() -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
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
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        for _ in range(3):
            await operator.reconcile(KEY)
        for again in (operator, _operator(api)):
            api.writes.clear()
            for _ in range(3):
                await again.reconcile(KEY)
            assert api.writes == []
            again.close()

    asyncio.run(main())


def test_volumes_grow_to_what_the_specification_says_in_its_own_words() -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
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


def test_everything_that_is_owned_is_the_resources_and_volumes_are_nobodys() -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        for (kind, _, name), one in api.objects.items():
            owners = one["metadata"].get("ownerReferences", [])
            if kind in {"KRaftCluster", "PersistentVolumeClaim", "Event"} or name == "sample-record":
                assert not owners, name
            else:
                assert [owner["uid"] for owner in owners] == ["u"], name
        operator.close()

    asyncio.run(main())


def test_volumes_go_with_the_resource_only_where_and_as_long_as_that_is_wished() -> None:
    async def main() -> None:
        api = _api()
        api.objects["KRaftCluster", *KEY]["spec"]["nodePools"][1]["storage"]["deletionPolicy"] = "Delete"
        operator = _operator(api)
        await _settle(api, operator)

        def owned() -> set[str]:
            there = {name: one for (kind, _, name), one in api.objects.items() if kind == "PersistentVolumeClaim"}
            assert len(there) == 6
            return {name for name, one in there.items() if one["metadata"].get("ownerReferences")}

        assert owned() == {"data-sample-101-0", "data-sample-102-0", "data-sample-103-0"}
        other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": "m"}
        api.objects["PersistentVolumeClaim", "demo", "data-sample-1-0"]["metadata"]["ownerReferences"] = [other]
        resource = api.objects["KRaftCluster", *KEY]
        for pool, policy in zip(resource["spec"]["nodePools"], ("Delete", "Keep"), strict=True):
            pool["storage"]["deletionPolicy"] = policy
        resource["metadata"]["generation"] = 2
        await operator.reconcile(KEY)
        assert owned() == {"data-sample-1-0", "data-sample-2-0", "data-sample-3-0"}
        found = api.objects["PersistentVolumeClaim", "demo", "data-sample-1-0"]["metadata"]["ownerReferences"]
        assert [one["uid"] for one in found] == ["m", "u"]
        operator.close()

    asyncio.run(main())


@pytest.mark.parametrize("code", [40, 42], ids=["InvalidConfig", "InvalidRequest"])
def test_what_the_cluster_refuses_for_good_is_in_the_status(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)

        async def refuse(*_: Any, **__: Any) -> None:
            raise RefusedError(code, "IncrementalAlterConfigs: log.retention.ms: not a number")

        planned = do.Plan(steps=[do.SetConfig({"log.retention.ms": "x"}, ())])
        monkeypatch.setattr("kraft_operator.reconcile.plan", lambda *_: copy.deepcopy(planned))
        monkeypatch.setattr("kraft_operator.apply.kafka.carry_out", refuse)
        for _ in range(3):
            with pytest.raises(RefusedError):
                await operator.reconcile(KEY)
        told = {one["type"]: one for one in api.objects["KRaftCluster", *KEY]["status"]["conditions"]}
        assert (told["Degraded"]["status"], told["Degraded"]["reason"]) == ("True", "StepRefused")
        assert "log.retention.ms" in told["Degraded"]["message"]
        events = [one for (kind, *_), one in api.objects.items() if kind == "Event" and one["reason"] == "StepRefused"]
        assert len(events) == 1, "told once"
        operator.close()

    asyncio.run(main())


def _degraded(api: FakeApi) -> tuple[str, str]:
    (found,) = [one for one in api.objects["KRaftCluster", *KEY]["status"]["conditions"] if one["type"] == "Degraded"]
    return found["reason"] if found["status"] == "True" else "", found["message"]


@pytest.mark.parametrize("kind", ["Service", "Pod"])
def test_what_kubernetes_refuses_for_good_is_in_the_status_until_it_is_taken(kind: str) -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)

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
        events = [one for (kind, *_), one in api.objects.items() if kind == "Event" and one["reason"] == "StepRefused"]
        assert len(events) == 1, "told once"
        api.before = lambda *_: None
        await _settle(api, operator)
        assert _degraded(api)[0] == ""
        operator.close()

    asyncio.run(main())


def test_a_volume_that_cannot_grow_holds_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor can it be taken back: volumes do not shrink."""

    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)

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

        monkeypatch.setattr("kraft_operator.reconcile._Pass.topics", topics)
        with pytest.raises(ApiError):
            await operator.reconcile(KEY)
        assert _pods(api) == SIX
        assert made == ["topics"]
        assert _degraded(api) == ("StepRefused", "403 Forbidden: its class cannot resize")
        operator.close()

    asyncio.run(main())


def test_what_was_remembered_stays_so_when_a_later_step_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
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


def test_a_format_job_that_cannot_begin_is_made_anew_once_the_resource_is_corrected() -> None:
    """Its template cannot be changed, and what it waits for would never come."""

    async def main() -> None:
        api = _api()
        operator = _operator(api)
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
        told = next(one for one in resource["status"]["conditions"] if one["type"] == "Progressing")
        assert "voter 1: its volume is being formatted: ImagePullBackOff: no such image" in told["message"]
        before = api.objects[key]["metadata"]["uid"]
        resource["spec"]["image"] = "x/y:corrected"
        resource["metadata"]["generation"] = 2
        for _ in range(3):
            await operator.reconcile(KEY)
        del api.objects["Pod", "demo", "x"]
        assert api.objects[key]["metadata"]["uid"] != before
        assert api.objects[key]["spec"]["template"]["spec"]["containers"][0]["image"] == "x/y:corrected"
        await _settle(api, operator)
        operator.close()

    asyncio.run(main())


def test_a_resource_that_cannot_be_followed_says_so() -> None:
    async def main() -> None:
        api = _api()
        del api.objects["KRaftCluster", *KEY]["spec"]["image"]
        operator = _operator(api)
        for _ in range(2):
            await operator.reconcile(KEY)
            assert _degraded(api)[0] == "NoImage"
        assert [kind for _, kind, _ in api.writes] == ["Event", "KRaftCluster"], "told once"
        api.objects["KRaftCluster", *KEY]["spec"] |= {"image": "x/y:1", "replicas": "many"}
        await operator.reconcile(KEY)
        assert _degraded(api)[0] == "NotUnderstood"
        api.objects["KRaftCluster", *KEY]["spec"]["replicas"] = 3
        await _settle(api, operator)
        assert _degraded(api)[0] == ""
        operator.close()

    asyncio.run(main())


def test_racks_that_the_operator_cannot_know_are_told() -> None:
    async def main() -> None:
        api = _api()
        api.objects["KRaftCluster", *KEY]["spec"]["rack"] = {"nodeLabel": "zone"}
        operator = _operator(api)
        await _settle(api, operator)
        assert _degraded(api)[0] == "RacksUnknown"
        assert "watch.nodes=true" in _degraded(api)[1]
        operator.close()

    asyncio.run(main())


def test_a_topic_without_its_cluster_says_so() -> None:
    async def main() -> None:
        api = FakeApi()
        operator = _operator(api)
        for name, cluster in (("t", "sample"), ("other", "others")):
            metadata = {"name": name, "namespace": "demo", "generation": 1}
            api.objects["KRaftTopic", "demo", name] = {
                "kind": "KRaftTopic",
                "metadata": {**metadata, "resourceVersion": "1"},
                "spec": {"cluster": cluster, **TOPIC_DEFAULTS},
            }
        for _ in range(2):
            assert await operator.reconcile(KEY) is None
        (condition,) = api.objects["KRaftTopic", "demo", "t"]["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "ClusterMissing")
        assert "there is no KRaftCluster sample in this namespace" in condition["message"]
        assert [write for write in api.writes if write[1] == "KRaftTopic"] == [("patch", "KRaftTopic", "t")]
        assert _events(api) == [("KRaftTopic", "ClusterMissing")]
        operator.close()

    asyncio.run(main())


class Topics:
    """A cluster's topics behind `apply.topics`, in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there: dict[str, TopicSeen] = {}
        self.deleted: list[str] = []
        self.before: Any = lambda: None
        """Called before a batch is done."""

        async def look(_client: Any, _broker: Any, names: Any, *_: Any) -> TopicsSeen:
            return TopicsSeen({name: self.there[name] for name in names if name in self.there})

        async def make(_client: Any, _broker: Any, plan: Any) -> dict[str, Any]:
            self.before()
            for wish in plan.create:
                self.there[wish.topic] = TopicSeen(f"id-{wish.topic}", wish.partitions, 3, dict(wish.config))
            for topic in plan.delete:
                self.deleted.append(topic)
                del self.there[topic]
            return {}

        async def nothing(*_: Any) -> dict[str, Any]:
            return {}

        monkeypatch.setattr("kraft_operator.observe.kafka.View.look", nothing)
        monkeypatch.setattr("kraft_operator.observe.objects.brokers", lambda *_: {101: Address("b", 1)})
        monkeypatch.setattr("kraft_operator.apply.topics.look", look)
        monkeypatch.setattr("kraft_operator.apply.topics.validate", nothing)
        monkeypatch.setattr("kraft_operator.apply.topics.carry_out", make)


TOPIC_DEFAULTS: dict[str, Any] = {"partitions": 1, "config": {}, "deletionPolicy": "Keep"}
"""As the API server fills them in."""


def _declare(api: FakeApi, name: str, uid: str = "u1", **spec: Any) -> None:
    metadata = {"name": name, "namespace": "demo", "generation": 1, "uid": uid}
    spec = {"cluster": "sample", **TOPIC_DEFAULTS, **spec}
    api.objects["KRaftTopic", "demo", name] = {"kind": "KRaftTopic", "metadata": metadata, "spec": spec}


def _events(api: FakeApi) -> list[tuple[str, str]]:
    """Kind of the object and reason, of all that are about topics, oldest first."""
    events = [one for (kind, *_), one in api.objects.items() if kind == "Event"]
    told = [(one["involvedObject"]["kind"], one["reason"]) for one in events]
    return [(kind, reason) for kind, reason in told if kind == "KRaftTopic" or "Topic" in reason]


def test_a_topics_status_says_that_it_is_created_before_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        topics = Topics(monkeypatch)
        _declare(api, "t", partitions=2, config={"retention.ms": "1"})
        statuses: list[dict[str, Any]] = []
        topics.before = lambda: statuses.append(copy.deepcopy(api.objects["KRaftTopic", "demo", "t"]["status"]))
        api.writes.clear()
        for _ in range(3):
            await operator.reconcile(KEY)
        assert statuses[0]["creating"]
        assert statuses[0]["managedConfig"] == ["retention.ms"]
        assert [write for write in api.writes if write[1] == "KRaftTopic"] == [("patch", "KRaftTopic", "t")] * 2
        status = api.objects["KRaftTopic", "demo", "t"]["status"]
        assert (status["partitions"], status["conditions"][0]["reason"], status["creating"]) == (2, "InForce", False)
        operator.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "change", [{"deletionPolicy": "Retain"}, {"partitions": 200_000}, {"cluster": None}, {"config": None}]
)
def test_a_topic_outlives_a_resource_that_is_not_understood(
    change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CRD of another version than the operator: the topic was deleted within 8 s, without a word. None is pruned."""

    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        topics = Topics(monkeypatch)
        _declare(api, "t", deletionPolicy="Delete")
        for _ in range(3):
            await operator.reconcile(KEY)
        resource = api.objects["KRaftTopic", "demo", "t"]
        assert api.objects["KRaftCluster", *KEY]["status"]["topics"] == [
            {"name": "t", "id": "id-t", "resource": "t", "uid": "u1"}
        ]
        spec = {key: value for key, value in {**resource["spec"], **change}.items() if value is not None}
        resource["spec"] = spec
        for again in (operator, _operator(api)):
            for _ in range(3):
                await again.reconcile(KEY)
        assert topics.there.keys() == {"t"}
        resource = api.objects["KRaftTopic", "demo", "t"]
        (condition,) = resource["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "NotUnderstood")
        assert f"spec.{next(iter(change))}" in condition["message"]
        assert resource["status"]["topicId"] == "id-t"
        assert _events(api) == [("KRaftTopic", "NotUnderstood")], "once"
        resource["spec"] = {"cluster": "sample", **TOPIC_DEFAULTS, "deletionPolicy": "Delete"}
        await operator.reconcile(KEY)
        del api.objects["KRaftTopic", "demo", "t"]
        for _ in range(2):
            await operator.reconcile(KEY)
        assert topics.deleted == ["t"], "understood again, and gone"
        operator.close()

    asyncio.run(main())


def test_a_topics_deletion_is_told_before_it_happens(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        topics = Topics(monkeypatch)
        _declare(api, "t", deletionPolicy="Delete")
        for _ in range(3):
            await operator.reconcile(KEY)
        del api.objects["KRaftTopic", "demo", "t"]
        told: list[list[tuple[str, str]]] = []
        topics.before = lambda: told.append(_events(api))
        for _ in range(2):
            await operator.reconcile(KEY)
        assert topics.deleted == ["t"]
        assert told[0] == [("KRaftCluster", "DeletingTopic")]
        assert any("topic t (id id-t) is deleted" in one.getMessage() for one in caplog.records)
        operator.close()

    caplog.set_level("INFO")
    asyncio.run(main())


def test_a_topic_is_not_deleted_on_the_word_of_an_old_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a pass's list and its deletions lie its other steps: the resource may be back by then."""

    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        topics = Topics(monkeypatch)
        _declare(api, "t", deletionPolicy="Delete")
        for _ in range(3):
            await operator.reconcile(KEY)
        del api.objects["KRaftTopic", "demo", "t"]
        lists = itertools.count()
        listed = api.list

        async def back(kind: str, *words: Any) -> list[dict[str, Any]]:
            if kind == "KRaftTopic" and next(lists) == 1:
                _declare(api, "t", uid="u2", deletionPolicy="Delete")
            return await listed(kind, *words)

        monkeypatch.setattr(api, "list", back)
        for _ in range(3):
            await operator.reconcile(KEY)
        assert topics.deleted == []
        assert api.objects["KRaftCluster", *KEY]["status"]["topics"][0]["uid"] == "u2"
        operator.close()

    asyncio.run(main())


def test_a_paused_cluster_is_left_alone() -> None:
    async def main() -> None:
        api = _api()
        api.objects["KRaftCluster", *KEY]["spec"]["paused"] = True
        operator = _operator(api)
        await operator.reconcile(KEY)
        assert {(verb, kind) for verb, kind, _ in api.writes} == {("patch", "KRaftCluster"), ("create", "Event")}
        operator.close()

    asyncio.run(main())


def test_a_cluster_that_is_gone_is_forgotten() -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await operator.reconcile(KEY)
        del api.objects["KRaftCluster", *KEY]
        assert await operator.reconcile(KEY) is None
        assert not operator._memories

    asyncio.run(main())


def test_a_service_edited_by_hand_is_put_right_by_the_next_operator() -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        operator.close()
        service = api.objects["Service", "demo", "sample-nodes"]
        service["spec"]["publishNotReadyAddresses"] = False
        again = _operator(api)
        await again.reconcile(KEY)
        assert api.objects["Service", "demo", "sample-nodes"]["spec"]["publishNotReadyAddresses"] is True
        again.close()

    asyncio.run(main())


def test_what_a_pipeline_of_the_same_name_has_is_left_alone() -> None:
    async def main() -> None:
        api = _api()
        labels = {"app.kubernetes.io/instance": "sample", "app.kubernetes.io/managed-by": "kraft-operator"}
        labels["app.kubernetes.io/name"] = "kraft-pipeline"
        metadata = {"name": "sample-table", "namespace": "demo", "uid": "other", "labels": labels}
        theirs = api.objects["ConfigMap", "demo", "sample-table"] = {"metadata": metadata, "data": {}}
        operator = _operator(api)
        await _settle(api, operator)
        assert api.objects["ConfigMap", "demo", "sample-table"] is theirs
        operator.close()

    asyncio.run(main())


def test_what_somebody_else_has_made_is_neither_taken_over_nor_deleted() -> None:
    """Names are made of the cluster's: a-1-x is a service of cluster a-1, and of broker 1 of cluster a."""

    async def main() -> None:
        api = _api()
        service = {"kind": "Service", "metadata": {"name": "sample-102-external", "namespace": "demo", "uid": "s"}}
        labels = {"app.kubernetes.io/name": "kraftcluster", "app.kubernetes.io/instance": "sample"}
        helms = {"kind": "Service", "metadata": {"name": "sample-dashboard", "namespace": "demo", "labels": labels}}
        claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data-sample-103-0", "namespace": "demo"}}
        foreign = [service, helms, claim]
        for one in foreign:
            api.objects[one["kind"], "demo", one["metadata"]["name"]] = copy.deepcopy(one)
        operator = _operator(api)
        for _ in range(12):
            with contextlib.suppress(ApiError):
                await operator.reconcile(KEY)
            api.work()
        assert [api.objects[one["kind"], "demo", one["metadata"]["name"]] for one in foreign] == foreign
        assert _pods(api) == ["sample-1", "sample-101", "sample-2", "sample-3"], "all others go on"
        degraded = _condition(api, "Degraded")
        assert degraded["reason"] == "StepRefused"
        assert "Service sample-102-external is there and somebody else's" in degraded["message"]
        for one in (service, claim):
            del api.objects[one["kind"], "demo", one["metadata"]["name"]]
        await _settle(api, operator)
        operator.close()

    asyncio.run(main())


def test_services_of_brokers_whose_pool_is_gone_are_left_as_they_are() -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        resource = api.objects["KRaftCluster", *KEY]
        del resource["spec"]["nodePools"][1]
        resource["metadata"]["generation"] = 2
        del api.objects["Service", "demo", "sample-102-external"]
        for _ in range(3):
            await operator.reconcile(KEY)
        assert [node["leaving"] for node in api.objects["KRaftCluster", *KEY]["status"]["nodes"]] == [False] * 3 + [
            True
        ] * 3
        assert ("Service", "demo", "sample-101-external") in api.objects
        operator.close()

    asyncio.run(main())


def test_a_brokers_service_that_was_deleted_by_hand_is_made_anew() -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        there = api.objects.pop(("Service", "demo", "sample-102-external"))
        for _ in range(2):
            await operator.reconcile(KEY)
        made = api.objects["Service", "demo", "sample-102-external"]
        assert made["spec"]["selector"] == there["spec"]["selector"]
        assert made["spec"]["ports"] != there["spec"]["ports"], "another port: the broker needs a restart"
        (node,) = [one for one in api.objects["KRaftCluster", *KEY]["status"]["nodes"] if one["needsRestart"]]
        assert (node["id"], node["needsRestart"]) == (102, ["addresses"])
        operator.close()

    asyncio.run(main())


def test_what_a_node_that_left_had_is_cleared_away() -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        stray = copy.deepcopy(_config(api, "sample-101"))
        stray["metadata"] |= {"name": "sample-199", "labels": {**stray["metadata"]["labels"]}}
        stray["metadata"]["labels"]["kraftcluster.io/node"] = "199"
        await api.create(stray)
        again = _operator(api)
        await again.reconcile(KEY)
        assert ("ConfigMap", "demo", "sample-199") not in api.objects
        assert _config(api, "sample-101")
        operator.close()
        again.close()

    asyncio.run(main())


# The configuration of nodes


def _config(api: FakeApi, pod: str) -> dict[str, Any]:
    """The ConfigMap that a pod refers to."""
    name = config_name(api.objects["Pod", "demo", pod]["spec"])
    return api.objects["ConfigMap", "demo", str(name)]


def test_a_configuration_is_named_by_its_content_and_never_changes() -> None:
    """One of a fixed name started old voters under new annotations, from a kubelet's stale copy."""

    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        before = copy.deepcopy(_config(api, "sample-101"))
        assert before["immutable"]
        revision = before["metadata"]["name"].rpartition("-")[2]
        assert f"config.revision={revision}\n" in before["data"]["server.properties"]
        api.objects["KRaftCluster", *KEY]["spec"]["config"]["num.partitions"] = "7"
        del api.objects["Pod", "demo", "sample-101"]
        for _ in range(3):
            await operator.reconcile(KEY)
        after = _config(api, "sample-101")
        assert after["metadata"]["name"] != before["metadata"]["name"]
        assert "num.partitions=7" in after["data"]["server.properties"]
        again = _operator(api)
        await again.reconcile(KEY)
        assert ("ConfigMap", "demo", before["metadata"]["name"]) not in api.objects, "nobody refers to it any more"
        assert _config(api, "sample-102")
        operator.close()
        again.close()

    asyncio.run(main())


def test_a_configuration_is_restored_while_its_pod_exists() -> None:
    """After a restart of the machine the broker was stuck in ContainerCreating, and Ready was True."""

    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        lost = copy.deepcopy(_config(api, "sample-101"))
        name = lost["metadata"]["name"]
        del api.objects["ConfigMap", "demo", name]
        for fault in (ApiError(403, "Forbidden", "no ConfigMaps today"), None):
            api.before = lambda _verb, kind, _name, fault=fault: fault if kind == "ConfigMap" else None
            with contextlib.suppress(ApiError):
                await operator.reconcile(KEY)
            if fault is not None:
                ready = _condition(api, "Ready")
                assert ready["status"] == "False"
                assert f"broker 101: ConfigMap {name} is missing" in ready["message"]
        made = api.objects["ConfigMap", "demo", name]
        assert made["data"] == lost["data"]
        operator.close()

    asyncio.run(main())


def test_a_configuration_that_cannot_be_restored_is_named_and_its_pod_made_anew_once_it_does_not_run() -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        name = _config(api, "sample-101")["metadata"]["name"]
        del api.objects["ConfigMap", "demo", name]
        api.objects["KRaftCluster", *KEY]["spec"]["config"]["log.retention.ms"] = "77777777"  # needs no restart
        for _ in range(2):
            await operator.reconcile(KEY)
        assert ("ConfigMap", "demo", name) not in api.objects
        assert _condition(api, "Ready")["status"] == "False"
        degraded = _condition(api, "Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", "ConfigLost")
        assert f"ConfigMap {name} of broker 101 is gone" in degraded["message"]
        assert "kubectl kraft roll 101" in degraded["message"]
        uid = api.objects["Pod", "demo", "sample-101"]["metadata"]["uid"]
        waiting = {"state": {"waiting": {"reason": "CreateContainerConfigError"}}, "restartCount": 0}
        api.objects["Pod", "demo", "sample-101"]["status"]["containerStatuses"] = [waiting]
        for _ in range(4):
            await operator.reconcile(KEY)
            api.work()
        assert api.objects["Pod", "demo", "sample-101"]["metadata"]["uid"] != uid
        assert "log.retention.ms=77777777" in _config(api, "sample-101")["data"]["server.properties"]
        operator.close()

    asyncio.run(main())


def test_a_pod_of_an_older_operator_keeps_the_configuration_of_its_fixed_name() -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        pod = api.objects["Pod", "demo", "sample-101"]
        pod["spec"]["volumes"][0]["configMap"]["name"] = "sample-101"
        for _ in range(2):
            await operator.reconcile(KEY)
        restored = _config(api, "sample-101")
        assert restored["metadata"]["name"] == "sample-101"
        assert "immutable" not in restored
        again = _operator(api)
        await again.reconcile(KEY)
        assert _config(api, "sample-101")
        operator.close()
        again.close()

    asyncio.run(main())


@pytest.mark.parametrize("new", [False, True], ids=["a listener that is there", "a new listener"])
def test_nothing_is_restarted_for_a_service_that_kubernetes_refuses(new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`firstNodePort: 80` restarted three controllers and stopped a broker before it was refused."""

    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
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
        degraded = _condition(api, "Degraded")
        assert "80 is not in the range" in degraded["message"]
        assert "until the listener is corrected" in degraded["message"]
        api.before = lambda *_: None
        await operator.reconcile(KEY)
        assert "deletionTimestamp" in api.objects["Pod", "demo", "sample-1"]["metadata"]
        operator.close()

    asyncio.run(main())


def test_a_service_that_kubernetes_refuses_does_not_hold_up_hibernation() -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
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
        assert _pods(api) == []
        operator.close()

    asyncio.run(main())


def test_a_broker_that_advertises_an_old_address_is_not_ready() -> None:
    """Ready was True for 41 s while clients could not reach it; services were not watched."""

    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        service = api.objects["Service", "demo", "sample-102-external"]
        service["spec"]["ports"][0]["nodePort"] = 32_001
        await operator.reconcile(KEY)
        ready = _condition(api, "Ready")
        assert ready["status"] == "False"
        assert "broker 102: advertises external=$(HOST_IP):" in ready["message"]
        assert "32001" in ready["message"]
        operator.close()

    asyncio.run(main())
    assert ("", "v1", "services") in OBJECTS


def test_a_pod_whose_image_cannot_be_pulled_is_degraded() -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        waiting = {"reason": "ErrImagePull", "message": "not found"}
        api.objects["Pod", "demo", "sample-101"]["status"] = {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [{"state": {"waiting": waiting}, "restartCount": 0}],
        }
        await operator.reconcile(KEY)
        degraded = _condition(api, "Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", "PodFails")
        assert degraded["message"] == "the pod of broker 101 does not start: ErrImagePull: not found"
        operator.close()

    asyncio.run(main())


def test_a_new_cluster_of_two_controllers_is_refused() -> None:
    """The rule said 1, 3 or 5; whoever may change voters got past the API server's."""

    async def main() -> None:
        api = _api()
        spec = api.objects["KRaftCluster", *KEY]["spec"]
        spec["nodePools"][0]["replicas"] = 2
        spec["quorum"]["allowVoterChanges"] = True
        operator = _operator(api)
        for _ in range(3):
            await operator.reconcile(KEY)
        assert not [key for key in api.objects if key[0] in {"Pod", "Job", "PersistentVolumeClaim"}]
        degraded = _condition(api, "Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", "EvenQuorum")
        spec["nodePools"][0]["replicas"] = 3
        await _settle(api, operator)
        operator.close()

    asyncio.run(main())


# Whose objects they are


def test_a_pod_with_copied_labels_is_not_taken_for_a_nodes() -> None:
    """`kubectl debug --copy-to` copies labels: the copy was seen instead of the node, and would have been deleted."""

    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        copied = copy.deepcopy(api.objects["Pod", "demo", "sample-101"])
        copied["metadata"] |= {"name": "zz-debug", "uid": "copy"}
        del copied["metadata"]["ownerReferences"]
        copied["status"] = {"phase": "Failed", "conditions": []}
        api.objects["Pod", "demo", "zz-debug"] = copied
        for _ in range(3):
            await operator.reconcile(KEY)
        assert "deletionTimestamp" not in api.objects["Pod", "demo", "zz-debug"]["metadata"]
        node = next(one for one in api.objects["KRaftCluster", *KEY]["status"]["nodes"] if one["id"] == 101)
        assert node["state"] == "Ready"
        operator.close()

    asyncio.run(main())


def test_orphaned_pods_are_taken_up_by_a_resource_of_their_name() -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        for name in SIX:
            del api.objects["Pod", "demo", name]["metadata"]["ownerReferences"]
        uids = [api.objects["Pod", "demo", name]["metadata"]["uid"] for name in SIX]
        again = _operator(api)
        for _ in range(3):
            await again.reconcile(KEY)
        assert [api.objects["Pod", "demo", name]["metadata"]["uid"] for name in SIX] == uids
        owners = [api.objects["Pod", "demo", name]["metadata"]["ownerReferences"][0]["uid"] for name in SIX]
        assert owners == ["u"] * 6
        operator.close()
        again.close()

    asyncio.run(main())


def test_claims_that_go_with_the_resource_of_before_are_not_adopted() -> None:
    """Deleted and applied anew: it took up volumes that the garbage collector was about to delete."""

    async def main() -> None:
        api = _api()
        for pool in api.objects["KRaftCluster", *KEY]["spec"]["nodePools"]:
            pool["storage"]["deletionPolicy"] = "Delete"
        operator = _operator(api)
        await _settle(api, operator)
        first = api.objects["KRaftCluster", *KEY]
        old = {key[2]: one["metadata"]["uid"] for key, one in api.objects.items() if key[0] == "PersistentVolumeClaim"}
        for key in [key for key in api.objects if key[0] in {"Pod", "Job"}]:
            del api.objects[key]
        del first["status"]
        del api.objects["ConfigMap", "demo", "sample-record"]
        first["metadata"]["uid"] = "v"
        again = _operator(api)
        for _ in range(4):
            with contextlib.suppress(ApiError):
                await again.reconcile(KEY)
            api.work()
        assert _pods(api) == [], "nothing runs on them"
        told = " ".join(api.objects["KRaftCluster", *KEY]["status"]["plan"])
        assert "goes with the KRaftCluster of uid u" in told
        for key, one in list(api.objects.items()):
            if any(owner["uid"] == "u" for owner in one["metadata"].get("ownerReferences", ())):
                del api.objects[key]  # the garbage collector
        await _settle(api, again)
        made = {key[2]: one["metadata"]["uid"] for key, one in api.objects.items() if key[0] == "PersistentVolumeClaim"}
        assert made.keys() == old.keys()
        assert not set(made.values()) & set(old.values())
        operator.close()
        again.close()

    asyncio.run(main())


@pytest.mark.parametrize("after", range(1, 60, 3))
def test_the_operator_may_die_after_any_write(after: int) -> None:
    async def main() -> None:
        api = _api()
        count = 0

        def dies(*_: str) -> ApiError | None:
            nonlocal count
            count += 1
            if count == after:
                raise Crash
            return None

        api.after = dies
        first = _operator(api)
        try:
            await _settle(api, first)
        except Crash:
            api.work()
        first.close()
        api.after = lambda *_: None
        second = _operator(api)
        await _settle(api, second)
        second.close()
        formats = Counter(name for verb, kind, name in api.writes if (verb, kind) == ("create", "Job"))
        assert max(formats.values()) <= 1, "no volume is formatted twice"

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(4))
def test_storms_of_refusals_pass(seed: int) -> None:
    """Every third write or so is refused, before or after it was done."""

    async def main() -> None:
        api = _api()
        rng = random.Random(seed)
        refusals = [ApiError(409, "Conflict", "storm"), ApiError(429, "", "storm"), ApiError(500, "", "storm")]

        def storm(*_: str) -> ApiError | None:
            return rng.choice(refusals) if rng.random() < 0.3 else None

        api.before = api.after = storm
        operator = _operator(api)
        for _ in range(30):
            with contextlib.suppress(ApiError):
                await operator.reconcile(KEY)
            api.work()
        api.before = api.after = lambda *_: None
        await _settle(api, operator)
        assert len({one["metadata"]["uid"] for (kind, *_), one in api.objects.items() if kind == "Pod"}) == 6
        operator.close()

    asyncio.run(main())


def test_a_wait_backs_off_and_a_new_one_is_looked_at_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)
        await _settle(api, operator)
        waits = ["a replica catches up"]
        monkeypatch.setattr("kraft_operator.reconcile.plan", lambda *_: do.Plan(waits=list(waits)))
        monkeypatch.setattr("kraft_operator.reconcile.UNKNOWN", frozenset())
        assert [await operator.reconcile(KEY) for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
        waits[0] = "another one does"
        assert await operator.reconcile(KEY) == 0.5
        operator.close()

    asyncio.run(main())


def test_a_pass_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api = _api()
        operator = _operator(api)

        async def never(*_: Any) -> None:
            await asyncio.sleep(600)

        monkeypatch.setattr("kraft_operator.reconcile.PASS_S", 0.01)
        monkeypatch.setattr(api, "get", never)
        with pytest.raises(ApiError, match="takes longer"):
            await operator.reconcile(KEY)
        operator.close()

    asyncio.run(main())
