"""Topics as resources, many at once: created, changed, and deleted or kept by their policy."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from e2e.kube import NAMESPACE, ROOT, Cluster, get, kubectl, needs_kubernetes, timed, until

pytestmark = needs_kubernetes

COUNT = 250
LABEL = "e2e=topics"


def _topic(cluster: Cluster, number: int, **spec: Any) -> dict[str, Any]:
    metadata = {"name": f"t-{number}", "namespace": NAMESPACE, "labels": {"e2e": "topics"}}
    return {
        "apiVersion": "kraftcluster.io/v1alpha1",
        "kind": "KRaftTopic",
        "metadata": metadata,
        "spec": {"cluster": cluster.name, "partitions": 1, "deletionPolicy": "Delete", **spec},
    }


def _apply(topics: list[dict[str, Any]]) -> None:
    kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(topics), check=True)


def _in_force(partitions: int) -> bool:
    statuses = [one.get("status", {}) for one in get("krafttopics", selector=LABEL)]
    return len(statuses) == COUNT and all(
        one.get("partitions") == partitions and one["conditions"][0]["status"] == "True" for one in statuses
    )


def test_many_topics_are_made_changed_and_deleted(cluster: Cluster) -> None:
    kubectl("delete", "krafttopics", "-n", NAMESPACE, "-l", LABEL, check=True)
    with timed(f"{COUNT} topics made"):
        _apply([_topic(cluster, number) for number in range(COUNT)])
        until("they are in force", lambda: _in_force(1))
    assert len(cluster.status["topics"]) == COUNT
    with timed(f"{COUNT} topics changed"):
        _apply([_topic(cluster, n, partitions=2, config={"retention.ms": "1000"}) for n in range(COUNT)])
        until("they are in force", lambda: _in_force(2))
    with timed(f"{COUNT} topics deleted"):
        kubectl("delete", "krafttopics", "-n", NAMESPACE, "-l", LABEL, "--wait=false", check=True)
        until("they are gone", lambda: not cluster.status.get("topics"))


def test_an_impossible_topic_is_reported(cluster: Cluster) -> None:
    _apply([_topic(cluster, 0, config={"no.such.key": "1"})])

    def refused() -> bool:
        conditions = get("krafttopics", "t-0").get("status", {}).get("conditions", [{}])
        return "no.such.key" in conditions[0].get("message", "")

    until("it says so", refused)
    kubectl("delete", "krafttopics", "-n", NAMESPACE, "-l", LABEL, check=True)


# Resources and definitions of different versions

CRD = "krafttopics.kraftcluster.io"
Schema = dict[str, Any]


@contextlib.contextmanager
def definition(change: Callable[[Schema], object]) -> Iterator[None]:
    """Give the API server another definition of KRaftTopic: `change` edits the schema of its specification."""
    text = (ROOT / "deploy/crds/krafttopics.yaml").read_text()
    other = yaml.safe_load(text)
    change(other["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"])
    try:
        _define(yaml.safe_dump(other))
        yield
    finally:
        _define(text)


def _define(text: str) -> None:
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text, check=True)
    time.sleep(3)  # until the API server uses it


def _one(name: str) -> dict[str, Any]:
    status = (get("krafttopics", name) or {}).get("status", {})
    return {**status, **next(iter(status.get("conditions", ())), {})}


def _reason(name: str, reason: str) -> dict[str, Any]:
    until(f"{name} is {reason}", lambda: _one(name).get("reason") == reason, 90)
    return _one(name)


def _settled(cluster: Cluster, name: str, **spec: Any) -> dict[str, Any]:
    topic = _topic(cluster, 0, **spec)
    topic["metadata"]["name"] = name
    _apply([topic])
    return _reason(name, "InForce")


def test_a_topic_outlives_an_unknown_policy(cluster: Cluster) -> None:
    """It was deleted with its data within 8 s."""
    before = _settled(cluster, "keep-me")
    with definition(lambda spec: spec["properties"]["deletionPolicy"]["enum"].append("Retain")):
        patch = '{"spec": {"deletionPolicy": "Retain"}}'
        kubectl("patch", "krafttopic", "keep-me", "-n", NAMESPACE, "--type=merge", "-p", patch, check=True)
        reported = _reason("keep-me", "NotUnderstood")
        assert "spec.deletionPolicy: \"Retain\" is not valid: 'Keep' or 'Delete' is expected" in reported["message"]
        cluster.passed()
        patch = '{"spec": {"deletionPolicy": "Delete"}}'
        kubectl("patch", "krafttopic", "keep-me", "-n", NAMESPACE, "--type=merge", "-p", patch, check=True)
    assert _reason("keep-me", "InForce")["topicId"] == before["topicId"], "the same topic, with its records"
    events = get("events", namespace=NAMESPACE, selector="")
    assert any(e["involvedObject"]["name"] == "keep-me" and e["reason"] == "NotUnderstood" for e in events)


def test_topics_outlive_a_definition_that_lacks_a_field(cluster: Cluster) -> None:
    """All topics with the policy Delete were deleted at the next resync."""
    before = {name: _settled(cluster, name)["topicId"] for name in ("first", "second")}

    def prune(spec: Schema) -> None:
        del spec["properties"]["cluster"], spec["required"], spec["x-kubernetes-validations"]

    with definition(prune):
        cluster.passed()
        assert "spec.cluster is missing" in _reason("first", "NotUnderstood")["message"]
    _apply([_topic(cluster, 0) | {"metadata": {"name": name, "namespace": NAMESPACE}} for name in before])
    # The rules let the field come back after the API server had dropped it from its storage.
    assert {name: _reason(name, "InForce")["topicId"] for name in before} == before
    kubectl("delete", "krafttopics", "-n", NAMESPACE, *before, check=True)
    until("they are gone", lambda: not {one["name"] for one in cluster.status.get("topics", ())} & before.keys())
    events = [one["message"] for one in get("events", selector="") if one["reason"] == "DeletingTopic"]
    assert all(any(topic_id in text for text in events) for topic_id in before.values()), events


def test_topics_are_adopted_only_on_request(cluster: Cluster) -> None:
    topic = _topic(cluster, 0, topicName="__consumer_offsets")
    refused = kubectl("apply", "--server-side", "-f", "-", stdin=topic)
    assert "the topic is internal" in refused.stderr
    first = _settled(
        cluster, "first-one", topicName="shared", deletionPolicy="Keep", config={"cleanup.policy": "compact"}
    )
    second = _topic(cluster, 0, topicName="shared", config={"retention.ms": "60000"})
    second["metadata"]["name"] = "another"
    _apply([second])
    assert "KRaftTopic first-one's" in _reason("another", "TopicTaken")["message"]
    kubectl("delete", "krafttopic", "first-one", "-n", NAMESPACE, check=True)
    assert "spec.adopt" in _reason("another", "TopicExists")["message"]
    second["spec"]["adopt"] = True
    _apply([second])
    reported = _reason("another", "InForce")
    assert (reported["topicId"], reported["managedConfig"]) == (first["topicId"], ["retention.ms"])
    kubectl("delete", "krafttopic", "another", "-n", NAMESPACE, check=True)
