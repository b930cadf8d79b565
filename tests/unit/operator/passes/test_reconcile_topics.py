"""KRaftTopics in whole passes: reports, survival and deletion of topics."""

from __future__ import annotations

import asyncio
import copy
import itertools
from typing import Any

import pytest

from kraft_operator.plan.topics import TopicSeen, TopicsSeen
from kraft_protocol.client.aio import Address
from tests.unit.operator.fake_kubernetes import FakeApi
from tests.unit.operator.reconciling import KEY, new_api, new_operator, settle

TOPIC_DEFAULTS: dict[str, Any] = {"partitions": 1, "config": {}, "deletionPolicy": "Keep"}
"""As the API server fills them in."""


def test_a_topic_without_its_cluster_is_reported() -> None:
    async def main() -> None:
        api = FakeApi()
        operator = new_operator(api)
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
        assert "KRaftCluster sample does not exist in this namespace" in condition["message"]
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
            for topic in plan.create:
                self.there[topic.topic] = TopicSeen(f"id-{topic.topic}", topic.partitions, 3, dict(topic.config))
            for topic in plan.delete:
                self.deleted.append(topic)
                del self.there[topic]
            return {}

        self.complete = True
        """Whether the broker proves that its image is complete."""

        async def is_complete(_source: Any, _node: int) -> bool:
            return self.complete

        async def nothing(*_: Any) -> dict[str, Any]:
            return {}

        monkeypatch.setattr("kraft_operator.observe.source.MetadataSource.is_complete", is_complete)
        monkeypatch.setattr("kraft_operator.observe.kafka.View.look", nothing)
        monkeypatch.setattr("kraft_operator.observe.objects.brokers", lambda *_: {101: Address("b", 1)})
        monkeypatch.setattr("kraft_operator.apply.topics.look", look)
        monkeypatch.setattr("kraft_operator.apply.topics.validate", nothing)
        monkeypatch.setattr("kraft_operator.apply.topics.carry_out", make)


def _declare(api: FakeApi, name: str, uid: str = "u1", **spec: Any) -> None:
    metadata = {"name": name, "namespace": "demo", "generation": 1, "uid": uid}
    spec = {"cluster": "sample", **TOPIC_DEFAULTS, **spec}
    api.objects["KRaftTopic", "demo", name] = {"kind": "KRaftTopic", "metadata": metadata, "spec": spec}


def _events(api: FakeApi) -> list[tuple[str, str]]:
    """Kind of the object and reason of all events about topics, oldest first."""
    events = [one for (kind, *_), one in api.objects.items() if kind == "Event"]
    reported = [(one["involvedObject"]["kind"], one["reason"]) for one in events]
    return [(kind, reason) for kind, reason in reported if kind == "KRaftTopic" or "Topic" in reason]


def test_a_topics_status_names_the_creation_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
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
def test_a_topic_outlives_an_invalid_resource(change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With a CRD of another version than the operator, the topic was deleted within 8 s. Now nothing is pruned."""

    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
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
        for again in (operator, new_operator(api)):
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


def test_a_topics_deletion_is_announced_beforehand(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        topics = Topics(monkeypatch)
        _declare(api, "t", deletionPolicy="Delete")
        for _ in range(3):
            await operator.reconcile(KEY)
        del api.objects["KRaftTopic", "demo", "t"]
        reported: list[list[tuple[str, str]]] = []
        topics.before = lambda: reported.append(_events(api))
        for _ in range(2):
            await operator.reconcile(KEY)
        assert topics.deleted == ["t"]
        assert reported[0] == [("KRaftCluster", "DeletingTopic")]
        assert any("topic t (id id-t) is deleted" in one.getMessage() for one in caplog.records)
        operator.close()

    caplog.set_level("INFO")
    asyncio.run(main())


def test_a_topic_is_not_deleted_because_of_a_stale_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other steps lie between a pass's list and its deletions: the resource may be back by then."""

    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
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
