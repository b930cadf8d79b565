"""Topics as resources, many at once: made, changed, and deleted or kept as they say."""

from __future__ import annotations

from typing import Any

import yaml

from e2e.kube import NAMESPACE, Cluster, get, kubectl, needs_kubernetes, timed, until

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


def test_what_cannot_be_is_said(cluster: Cluster) -> None:
    _apply([_topic(cluster, 0, config={"no.such.key": "1"})])

    def refused() -> bool:
        conditions = get("krafttopics", "t-0").get("status", {}).get("conditions", [{}])
        return "no.such.key" in conditions[0].get("message", "")

    until("it says so", refused)
    kubectl("delete", "krafttopics", "-n", NAMESPACE, "-l", LABEL, check=True)
