"""Unsafe or impossible changes are not made, and are named.

The cases are an under-replicated topic, resources that no machine has, and a volume of another owner.
"""

from __future__ import annotations

import copy
import json
import time

from e2e.kube import (
    CLIENT_IMAGE,
    NAMESPACE,
    NODE_IMAGE,
    Cluster,
    Workload,
    get,
    kubectl,
    metric,
    needs_kubernetes,
    until,
)

pytestmark = needs_kubernetes


def _tool(cluster: Cluster, script: str) -> None:
    """Run a few lines of librdkafka in their own pod."""
    name = f"{cluster.name}-tool"
    kubectl("delete", "pod", name, "-n", NAMESPACE, "--ignore-not-found", "--grace-period=0", "--force")
    words = ["run", name, "-n", NAMESPACE, f"--image={CLIENT_IMAGE}", "--restart=Never"]
    security = {
        "spec": {
            "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": name,
                    "image": CLIENT_IMAGE,
                    "command": ["/opt/client/bin/python", "-c", script],
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        }
    }
    kubectl(*words, "--overrides", json.dumps(security), check=True)
    phase = until("the tool ends", lambda: _phase(name))
    assert phase == "Succeeded", kubectl("logs", name, "-n", NAMESPACE).stdout
    kubectl("delete", "pod", name, "-n", NAMESPACE, "--wait=false")


def _phase(name: str) -> str:
    phase = get("pod", name)["status"]["phase"]
    return phase if phase in {"Succeeded", "Failed"} else ""


TOPIC = """
from confluent_kafka.admin import AdminClient, NewTopic, ConfigResource, ConfigEntry, AlterConfigOpType, ResourceType
admin = AdminClient({{"bootstrap.servers": "{bootstrap}"}})
{what}
"""


def test_a_topic_of_one_replica_blocks_the_roll_and_is_named(cluster: Cluster) -> None:
    make = 'admin.create_topics([NewTopic("single", 3, 1)])["single"].result(30)'
    _tool(cluster, TOPIC.format(bootstrap=f"{cluster.name}-bootstrap:9092", what=make))
    before = cluster.uids()
    cluster.change(config={**cluster.spec["config"], "queued.max.requests": "600"})
    until("it is named", lambda: cluster.condition("Degraded").get("reason") == "PartitionAtRisk")
    assert "partition single-" in cluster.condition("Degraded")["message"]
    # The alert KraftGateHolds counts from this time on.
    labels = (f'cluster="{cluster.name}"', 'reason="PartitionAtRisk"')
    since = [
        value
        for found, value in metric("kraft_operator_blocked_since_timestamp_seconds")
        if all(one in found for one in labels)
    ]
    assert since
    assert 0 < since[0] <= time.time()
    after = cluster.uids()
    assert all(after[number] == before[number] for number in (101, 102, 103)), "each has a partition of the topic"
    cluster.change(updateStrategy={"unavailableTopics": ["single"]})
    cluster.settle()
    assert not set(before.values()) & set(cluster.uids().values())


def test_a_partition_at_its_minimum_isr_blocks_the_roll_and_is_named(cluster: Cluster) -> None:
    before = cluster.uids()
    with Workload(cluster) as work:
        cluster.annotate("skip", "103")
        cluster.kill(103)
        until("it is down", lambda: 103 not in cluster.pods())
        cluster.change(config={**cluster.spec["config"], "queued.max.requests": "700"})
        until("it is named", lambda: cluster.condition("Degraded").get("reason") == "PartitionAtRisk")
        reported = cluster.condition("Degraded")["message"]
        assert "partition work-" in reported
        assert "replica 103" in reported
        assert {cluster.uids()[number] == before[number] for number in (101, 102)} == {True}
        cluster.annotate("skip", "")
        cluster.settle()
    assert not set(before.values()) & set(cluster.uids().values())
    work.assert_nothing_lost()


def test_impossible_resource_requests_recover_after_a_correction(cluster: Cluster) -> None:
    pools = copy.deepcopy(cluster.spec["nodePools"])
    before = cluster.uids()
    pools[1]["resources"] = {"requests": {"cpu": "1000"}}
    cluster.change(nodePools=pools)
    until("it is named", lambda: "Unschedulable" in " ".join(cluster.status.get("plan", ())))
    assert sum(uid != before.get(number) for number, uid in cluster.uids().items()) <= 1
    pools[1]["resources"] = {"requests": {"cpu": "50m", "memory": "128Mi"}}
    cluster.change(nodePools=pools)
    cluster.settle()


def test_a_new_cluster_with_a_missing_image_recovers_after_a_correction(operator: None) -> None:
    one = Cluster("typo", image="localhost/kraftcluster:no-such")
    one.delete()
    try:
        one.apply()
        until("the status names the image", lambda: "Image" in " ".join(one.status.get("plan", ())))
        one.change(image=NODE_IMAGE)
        one.settle()
    finally:
        one.delete()


def test_a_foreign_volume_is_left_alone(operator: None) -> None:
    one = Cluster("foreign", clusterId="AAAAAAAAAAAAAAAAAAAAAA")
    one.delete()
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data-foreign-2-0",
            "namespace": NAMESPACE,
            "labels": {
                "app.kubernetes.io/name": "kraftcluster",
                "app.kubernetes.io/instance": "foreign",
                "kraftcluster.io/node": "2",
                "kraftcluster.io/disk": "0",
            },
            "annotations": {"kraftcluster.io/formatted-for": "BBBBBBBBBBBBBBBBBBBBBB/2"},
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    kubectl("create", "-f", "-", stdin=claim, check=True)
    try:
        one.apply()
        until("it is named", lambda: one.condition("Degraded").get("reason") == "ForeignVolumes")
        assert not one.pods()
        kept = get("pvc", "data-foreign-2-0")
        assert kept["metadata"]["annotations"]["kraftcluster.io/formatted-for"] == "BBBBBBBBBBBBBBBBBBBBBB/2"
    finally:
        one.delete()


def test_a_cluster_can_be_deleted_without_the_operator(operator: None) -> None:
    one = Cluster("orphan")
    one.delete()
    one.apply()
    one.settle()
    kubectl("scale", "deploy", "--all", "-n", NAMESPACE, "--replicas=0", check=True)
    try:
        until(
            "the operator is gone",
            lambda: not get("pods", selector="app.kubernetes.io/name=kraftcluster-operator"),
        )
        kubectl("delete", "kc", "orphan", "-n", NAMESPACE, check=True)
        until("its pods are gone", lambda: not one.pods())
        instance = "app.kubernetes.io/instance=orphan"
        until("its services are gone", lambda: not get("services", selector=instance))
        assert len(get("pvc", selector=instance)) == 6, "volumes stay"
    finally:
        kubectl("scale", "deploy", "--all", "-n", NAMESPACE, "--replicas=2", check=True)
        one.delete()


ACLS = """
from confluent_kafka.admin import AclBinding, AclBindingFilter, AclOperation, AclPermissionType, AdminClient, NewTopic
from confluent_kafka.admin import ResourcePatternType, ResourceType
admin = AdminClient({{"bootstrap.servers": "{bootstrap}"}})
what = (ResourceType.TOPIC, "secret", ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation.DESCRIBE,
        AclPermissionType.DENY)
{do}
"""


def test_topics_that_the_operator_may_not_see_block_restarts_and_are_named(cluster: Cluster) -> None:
    """The operator took them as missing, and gates passed."""
    authorizer = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    config = {**cluster.spec["config"], **authorizer, "allow.everyone.if.no.acl.found": "true"}
    cluster.change(config=config)
    cluster.settle()
    bootstrap = f"{cluster.name}-bootstrap:9092"
    hide = 'admin.create_topics([NewTopic("secret", 3, 3)])["secret"].result(30)\n'
    hide += "[one.result(30) for one in admin.create_acls([AclBinding(*what)]).values()]"
    _tool(cluster, ACLS.format(bootstrap=bootstrap, do=hide))
    before = cluster.uids()
    cluster.change(config={**config, "queued.max.requests": "800"})  # the value 700 is set already
    until("it is named", lambda: "PartitionsUnseen" in str(cluster.status.get("plan")))
    assert "1 topics are hidden from the operator" in str(cluster.status["plan"])
    after = cluster.uids()
    assert all(after[number] == before[number] for number in (101, 102, 103))
    show = "[one.result(30) for one in admin.delete_acls([AclBindingFilter(*what)]).values()]"
    _tool(cluster, ACLS.format(bootstrap=bootstrap, do=show))
    cluster.settle()
    assert not {before[number] for number in (101, 102, 103)} & set(cluster.uids().values())
