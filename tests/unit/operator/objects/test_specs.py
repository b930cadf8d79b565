"""Manifests, configuration files, requests: pure functions of the resource."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kraft_node.base.config import definitions
from kraft_node.base.config.effects import READ_ONCE
from kraft_node.base.config.node import NodeConfig
from kraft_node.base.config.properties import parse_properties
from kraft_node.metadata.features import METADATA_VERSIONS
from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.api.template import OWN_LABELS
from kraft_operator.plan.model.levels import FIRST, NAMES, UNKNOWN, level_of, name_of
from kraft_operator.plan.model.record import Claim, Node, Record, ReplacementRecord
from kraft_operator.plan.model.wanted import STARTS_WITH, keys_of
from kraft_operator.specs import network, pods
from kraft_operator.specs.planner_input import APPROVE, ROLL, SKIP, wanted_of
from kraft_operator.specs.properties import DYNAMIC, advertised, properties, text
from kraft_operator.specs.quantities import as_bytes
from kraft_operator.specs.remembered import record_of, remembered
from tests.unit.operator.sample import manifests, pool_aspects, sample
from tests.unit.operator.world import World


def _of(kind: str) -> list[dict[str, Any]]:
    return [one for one in manifests(sample()) if one["kind"] == kind]


def _pod_specs() -> list[dict[str, Any]]:
    return [pod["spec"] for pod in _of("Pod")] + [job["spec"]["template"]["spec"] for job in _of("Job")]


def test_keys_without_a_restart_are_the_nodes_dynamic_keys() -> None:
    keys = (*definitions.BROKER.values(), *definitions.BROKER_DYNAMIC_ONLY.values())
    assert {key.name for key in keys if key.update_mode == definitions.CLUSTER_WIDE} - READ_ONCE == DYNAMIC


def test_every_pod_is_hardened() -> None:
    specs = _pod_specs()
    assert len(specs) == 4
    for spec in specs:
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_spread_constraints_count_format_jobs() -> None:
    document = sample().spec.model_dump(by_alias=True, exclude_none=True)
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    for pool in document["nodePools"]:
        pool["pod"] = {"labels": {"mine": "yes"}, "topologySpreadConstraints": [spread]}
    for one in manifests(sample(nodePools=document["nodePools"])):
        if one["kind"] in {"Pod", "Job"}:
            pod = one if one["kind"] == "Pod" else one["spec"]["template"]
            assert pod["spec"]["topologySpreadConstraints"] == [spread]
            labels = pod["metadata"]["labels"]
            assert labels["app.kubernetes.io/instance"] == "sample"
            assert labels["kraftcluster.io/pool"] in {"controllers", "brokers"}
            assert labels["mine"] == "yes"
            assert ("kraftcluster.io/node" in labels) == (one["kind"] == "Pod"), "services select nodes by it"


def test_labels_of_a_pool_cannot_override_the_operators() -> None:
    """Rules refuse them; a resource that is older than the rules keeps its nodes all the same."""
    document = sample().spec.model_dump(by_alias=True, exclude_none=True)
    for pool in document["nodePools"]:
        pool["pod"] = {"labels": {"app.kubernetes.io/name": "x", "kraftcluster.io/node": "7", "team": "a"}}
    cluster = sample(nodePools=document["nodePools"])
    found = [one["metadata"]["labels"] for one in manifests(cluster) if one["kind"] == "Pod"]
    assert found[0] == cluster.labels(1, "controllers") | {"kraftcluster.io/controller": "true", "team": "a"}
    assert found[1] == cluster.labels(101, "brokers") | {"kraftcluster.io/broker": "true", "team": "a"}
    assert found[1].keys() - {"team"} <= set(OWN_LABELS)


def test_ports_of_a_pod_have_distinct_valid_names() -> None:
    listeners = [
        {"name": name, "port": 9100 + i} for i, name in enumerate(("external-public-a", "external-public-b", "a--b"))
    ]
    for one in manifests(sample(listeners=listeners)):
        if one["kind"] == "Pod":
            names = [port["name"] for port in one["spec"]["containers"][0]["ports"]]
            assert len(set(names)) == len(names)
            assert all(len(name) <= 15 and "--" not in name for name in names), names


def test_every_volume_that_is_mounted_is_there() -> None:
    for spec in _pod_specs():
        there = {volume["name"] for volume in spec["volumes"]}
        assert {mount["name"] for mount in spec["containers"][0]["volumeMounts"]} == there


def test_all_objects_but_volumes_are_owned_by_the_resource() -> None:
    for one in manifests(sample()):
        owned = "ownerReferences" in one["metadata"]
        assert owned == (one["kind"] != "PersistentVolumeClaim"), one["metadata"]["name"]


def test_pods_answer_under_the_names_that_voters_have() -> None:
    pod = _of("Pod")[0]
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("sample-1", "sample-nodes")
    service = _of("Service")[0]
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert not service["spec"]["selector"].items() <= _of("Job")[0]["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize(("number", "node_id"), [(0, 1), (1, 101)])
def test_the_node_takes_the_file(number: int, node_id: int) -> None:
    cluster = sample()
    pool = cluster.spec.node_pools[number]
    values = properties(cluster, pool, node_id, pool.roles, (1, 2, 3))
    config = NodeConfig.parse(values)
    assert config.int("node.id") == node_id
    assert values["controller.quorum.voters"].startswith("1@sample-1.sample-nodes.demo.svc:9090,2@")


def test_a_properties_file_keeps_every_value() -> None:
    """A carriage return ended the line, a leading blank was lost, and a node read the file in another encoding."""
    values = {"a": "b\\c\nd", "r": "1\rnode.id=7", " k=:#!": " x ", "u": "Zürich \U0001f600", "p": "1@host:9090,a=b"}
    assert parse_properties(text(values)) == values
    assert text(values).isascii()
    assert text({"p": values["p"]}) == "p=1@host:9090,a=b\n"


def test_only_changes_that_need_a_restart_change_an_aspect() -> None:
    before = sample()
    pool = before.spec.node_pools[1]
    config = before.spec.config
    dynamic = sample(config={**config, "min.insync.replicas": "1"})
    static = sample(config={**config, "num.partitions": "5"})
    image = sample(image="other:1")
    assert {k for k, v in pool_aspects(dynamic, pool).items() if v != pool_aspects(before, pool)[k]} == {STARTS_WITH}
    assert wanted_of(dynamic, {}).revision == wanted_of(before, {}).revision, "nothing to approve"
    assert {k for k, v in pool_aspects(static, pool).items() if v != pool_aspects(before, pool)[k]} == {"config"}
    assert {k for k, v in pool_aspects(image, pool).items() if v != pool_aspects(before, pool)[k]} == {"image"}


def test_a_pools_value_overrides_a_cluster_wide_dynamic_one() -> None:
    """A cluster-wide dynamic value overrides all files: the pool's own value had no effect."""
    document = sample().spec.model_dump(by_alias=True, exclude_none=True)
    config = {**document["config"], "log.retention.ms": "1000"}
    document["nodePools"][1]["config"] = {"log.retention.ms": "5000"}
    cluster = sample(config=config, nodePools=document["nodePools"])
    wanted = wanted_of(cluster, {})
    assert wanted.dynamic_config == {"min.insync.replicas": "2"}
    assert all(keys_of(pool.aspects[STARTS_WITH]) == {"min.insync.replicas"} for pool in wanted.pools)
    controllers, brokers = cluster.spec.node_pools
    assert properties(cluster, brokers, 101, brokers.roles, (1,))["log.retention.ms"] == "5000"
    other = sample(config={**config, "log.retention.ms": "2000"}, nodePools=document["nodePools"])
    assert pool_aspects(cluster, controllers)["config"] != pool_aspects(other, controllers)["config"], "a restart"


@pytest.mark.parametrize("change", [{"host": "kafka.example.org"}, {"firstNodePort": 31000}])
def test_changed_external_addresses_restart_only_brokers(change: dict[str, Any]) -> None:
    listeners = sample().spec.model_dump(by_alias=True, exclude_none=True)["listeners"]
    after = sample(listeners=[listeners[0], {**listeners[1], **change}])
    controllers, brokers = (
        {k for k, v in pool_aspects(after, pool).items() if v != pool_aspects(sample(), pool)[k]}
        for pool in after.spec.node_pools
    )
    assert (controllers, brokers) == (set(), {"config"})


@pytest.mark.parametrize("host", ["fd00::7", "10.0.0.7", "a.example.org", "$(HOST_IP)"])
def test_external_addresses_of_any_kind_are_advertised(host: str) -> None:
    cluster = sample()
    pool = cluster.spec.node_pools[1]
    said = advertised(cluster, 101, {"external": (host, 31000)}).replace("$(HOST_IP)", "fd00::8")
    values = properties(cluster, pool, 101, pool.roles, (1, 2, 3)) | {"advertised.listeners": said}
    reported = {one.name: (one.host, one.port) for one in NodeConfig.parse(values).advertised_broker_listeners}
    assert reported["EXTERNAL"] == (host.replace("$(HOST_IP)", "fd00::8"), 31000)


def test_the_sample_becomes_a_cluster() -> None:
    world = World(wanted_of(sample(), {}))
    world.settle()
    assert sorted(world.pods) == [1, 2, 3, 101, 102, 103]


def test_annotations_skip_roll_and_approve() -> None:
    wanted = wanted_of(sample(), {SKIP: "3, 101,x", ROLL: "102=now,y=z", APPROVE: "abc"})
    assert wanted.skip == {3, 101}
    assert wanted.rolls == {102: "now"}
    assert wanted.approved == "abc"
    assert wanted.revision != wanted_of(sample(), {}).revision


def test_invalid_ids_in_annotations_are_ignored() -> None:
    wanted = wanted_of(sample(), {SKIP: "², x,3,-1,", ROLL: "²=a,x=b,101=c,=d"})
    assert (wanted.skip, wanted.rolls) == ({3}, {101: "c"})


def test_the_record_survives_a_round_trip_through_the_status() -> None:
    record = Record(
        "id",
        (Node(1, "c", True, False, 2, True), replace(Node(7, "b", True, True), leaving=True, stopped=True)),
        (3, 4),
        (1,),
        (ReplacementRecord("r", 1, "NewId", new_id=7), ReplacementRecord("s", 1, "EmptyDisk", disk=2, done=True)),
        ("log.retention.ms",),
        True,
        (101, 102),
        "again",
        7,
        (Claim("orders", "MkU3OEVBNTcwNTJENDM2Qk", "orders", "u"),),
    )
    assert record_of(KRaftClusterStatus.model_validate(remembered(record))) == record


@pytest.mark.parametrize(
    ("text", "number"), [("10Gi", 10 * 2**30), ("1.5M", 1_500_000), ("7", 7), ("100m", 1), ("2Ki", 2048)]
)
def test_quantities_are_converted_to_bytes(text: str, number: int) -> None:
    assert as_bytes(text) == number


@pytest.mark.parametrize(
    ("text", "number"), [("12e9", 12 * 10**9), ("1E3", 1000), ("1.5e+1", 15), ("5e-1", 1), ("1E", 10**18), ("7.", 7)]
)
def test_sizes_of_edited_claims_may_have_any_form_of_kubernetes(text: str, number: int) -> None:
    """A claim whose size was changed to 12e9 ended every pass over its cluster."""
    assert as_bytes(text) == number
    assert as_bytes(".5k") == as_bytes("500000m") == as_bytes("500000000u") == 500


@pytest.mark.parametrize("text", ["", ".", "Gi", "10Q", "1.2.3", "10GiB", "²", "e3", "1e", "1e3k", "-1", "1_0"])
def test_an_invalid_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        as_bytes(text)


def test_levels_match_the_nodes() -> None:
    assert [(FIRST + place, name) for place, name in enumerate(NAMES)] == [(v.level, v.name) for v in METADATA_VERSIONS]
    assert level_of("4.3") == level_of("4.3-IV0") == 30
    assert name_of(30) == "4.3-IV0"
    assert level_of("9.9") is None
    assert wanted_of(sample(metadataVersion="9.9"), {}).metadata_version == UNKNOWN
    assert wanted_of(sample(metadataVersion="4.2"), {}).metadata_version == level_of("4.2-IV1")


def test_a_dynamic_quorum_is_found_through_its_controllers() -> None:
    cluster = sample(quorum={"mode": "Dynamic"})
    pool = cluster.spec.node_pools[1]
    aspects = {"roles": "broker", "quorum": "dynamic", "bootstrap": "1,2", "rack": "x"}
    text = pods.config_map(cluster, pool, Node(101, "brokers", False, True), aspects)["data"]["server.properties"]
    values = dict(line.split("=", 1) for line in text.splitlines())
    hosts = ",".join(f"sample-{i}.sample-nodes.demo.svc:9090" for i in (1, 2))
    assert values["controller.quorum.bootstrap.servers"] == hosts
    assert "controller.quorum.voters" not in values
    assert values["broker.rack"] == "x"


def test_a_broker_stays_near_its_rack() -> None:
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    cluster = sample(rack={"nodeLabel": "zone"})
    pool = cluster.spec.node_pools[1]
    pool.pod.affinity = affinity
    made = pods.pod(cluster, pool, Node(101, "brokers", False, True), {"roles": "broker", "rack": "x"}, {})
    machines = made["spec"]["affinity"]["nodeAffinity"]
    assert machines["requiredDuringSchedulingIgnoredDuringExecution"] == {"nodeSelectorTerms": []}
    (term,) = machines["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["preference"]["matchExpressions"] == [{"key": "zone", "operator": "In", "values": ["x"]}]
    assert affinity["nodeAffinity"].keys() == {"requiredDuringSchedulingIgnoredDuringExecution"}


def _budgets(*nodes: Node) -> dict[str, Any]:
    return {one["metadata"]["name"]: one["spec"] for one in network.disruption_budgets(sample(), nodes)}


def test_budgets_permit_one_eviction_for_each_role() -> None:
    """Kubernetes computes `maxUnavailable` from the owner's scale, 3 here, and would let three of five voters go."""
    controllers = [Node(i, "controllers", True, False) for i in (1, 2, 3, 4, 5)]
    brokers = [Node(i, "brokers", False, True) for i in (101, 102)]
    gone = Node(103, "brokers", False, True, stopped=True)
    found = _budgets(*controllers, *brokers, gone)
    assert {name: one["minAvailable"] for name, one in found.items()} == {"sample-controllers": 4, "sample-brokers": 1}
    assert not any("maxUnavailable" in one for one in found.values())


def test_a_pod_matches_only_one_budget() -> None:
    combined = [Node(i, "controllers", True, True) for i in (1, 2, 3)]
    (name,) = found = _budgets(*combined, Node(101, "brokers", False, True))
    assert (name, found[name]["minAvailable"]) == ("sample-nodes", 3)
    labels = pods.pod(sample(), sample().spec.node_pools[0], combined[0], {"roles": "broker,controller"}, {})
    assert found[name]["selector"]["matchLabels"].items() <= labels["metadata"]["labels"].items()


def test_network_policies_admit_nodes_and_clients() -> None:
    nodes, clients, jobs = network.network_policies(sample())
    assert nodes["spec"]["podSelector"]["matchLabels"].items() <= sample().labels().items()
    (client,) = clients["spec"]["ingress"]
    assert client == {"ports": [{"port": 9092}, {"port": 9094}]}
    assert jobs["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert jobs["spec"]["ingress"] == []
    assert network.network_policies(sample(networkPolicies={"enabled": False})) == []
    peer = {"podSelector": {"matchLabels": {"app": "x"}}}
    limited = network.network_policies(sample(networkPolicies={"clients": [peer]}))
    assert limited[1]["spec"]["ingress"][0]["from"] == [peer]


def test_a_cleared_record_overwrites_all_fields() -> None:
    """A status is patched: a field that is left out keeps its value."""
    before, after = (
        remembered(replace(Record("id"), joining=4, topics=(Claim("t", "x", "r", "u"),))),
        remembered(Record("id")),
    )
    assert before.keys() == after.keys()
    assert all(value is not None for value in after.values())
