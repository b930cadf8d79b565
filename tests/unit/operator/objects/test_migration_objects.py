"""`spec.migration`: which specifications are refused, the controllers' keys and files, and the network policy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kraft_local.folder import Folder
from kraft_local.mode import in_mode
from kraft_local.resource_file import BadResourceError, parsed, values
from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.plan.model.record import MIGRATED, Node, Record
from kraft_operator.plan.model.situation import MIGRATES
from kraft_operator.specs import network, pods
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.planner_input import wanted_of
from kraft_operator.specs.remembered import record_of, remembered
from kraft_protocol.configs.properties import parse_properties
from tests.unit.operator.sample import CLUSTER_ID, ROOT, sample

CONTROLLER = Node(1, "controllers", True, False)
TLS = {"connect": "zk:2182", "tls": {"secretName": "zk-tls"}}
PEERS = [{"podSelector": {"matchLabels": {"app": "old"}}}]


def _spec(migration: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A specification with a migration that is accepted, with changes."""
    full = {"zookeeper": {"connect": "zk:2181/kafka"}, "brokers": [5001, 5002], **(migration or {})}
    return {
        "clusterId": CLUSTER_ID,
        "metadataVersion": "3.9",
        "security": {"tls": "Disabled", "openListeners": ["external"]},
        "listeners": [{"name": "plaintext", "port": 9092}],
        "migration": full,
        **changes,
    }


def _cluster(migration: dict[str, Any] | None = None) -> NamedCluster:
    return sample(**_spec(migration))


def _problems(spec: dict[str, Any], before: dict[str, Any] | None = None) -> str:
    document = values(sample(**spec).spec)
    head = {"apiVersion": "kraftcluster.io/v1alpha1", "kind": "KRaftCluster", "metadata": {"name": "sample"}}
    former = None if before is None else values(sample(**before).spec)
    try:
        parsed(yaml.safe_dump({**head, "spec": document}), "f", former)
    except BadResourceError as error:
        return str(error)
    return ""


BOTH = [{"name": "both", "roles": ["broker", "controller"], "replicas": 1, "firstNodeId": 1}]
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no cluster id": (_spec(clusterId=None), "set clusterId"),
    "no version": (_spec(metadataVersion=None), "set metadataVersion"),
    "version of later brokers": (_spec(metadataVersion="4.0"), "set metadataVersion"),
    "combined node": (_spec(nodePools=BOTH), "pools of their own"),
    "dynamic quorum": (_spec(quorum={"mode": "Dynamic"}), "set quorum.mode to Static"),
    "tls": (_spec(security={}), "set security.tls to Disabled"),
    "no security": (_spec(security=None), "set security.tls to Disabled"),
    "id of a controller": (_spec({"brokers": [5001, 2]}), "an id of a pool"),
    "id of a later broker": (_spec({"brokers": [199]}), "an id of a pool"),
    "own key": (_spec(config={"zookeeper.connect": "zk"}), "use spec.migration"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_migration_that_cannot_work_is_refused(case: str) -> None:
    spec, text = REFUSED[case]
    spec = {key: value for key, value in spec.items() if value is not None}
    assert text in _problems(spec)


def test_a_migration_is_accepted_and_kept_and_removed_at_the_end() -> None:
    begun, over = _spec(), _spec({"phase": "Finalized"})
    without = {key: value for key, value in begun.items() if key != "migration"}
    assert _problems(begun) == ""
    assert _problems(over, begun) == ""
    assert _problems(without, over) == ""
    assert _problems({**over, "quorum": {"mode": "Dynamic"}, "metadataVersion": "4.3"}, over) == ""


def test_a_migration_neither_begins_later_nor_is_removed_early() -> None:
    begun = _spec()
    without = {key: value for key, value in begun.items() if key != "migration"}
    assert "make another KRaftCluster" in _problems(begun, without)
    assert "the migration is not finalized" in _problems(without, begun)


def _file(cluster: NamedCluster, node: Node, **aspects: str) -> dict[str, str]:
    pool = cluster.pool(node.pool)
    assert pool is not None
    roles = "controller" if node.controller else "broker"
    made = pods.config_map(cluster, pool, node, {"roles": roles, "voters": "1,2,3", **aspects})
    return parse_properties(made["data"][pods.FILE])


def test_a_controller_that_migrates_has_the_keys_and_the_brokers_listener() -> None:
    found = _file(_cluster(), CONTROLLER, **{MIGRATES: "x"})
    assert found["zookeeper.metadata.migration.enable"] == "true"
    assert found["zookeeper.connect"] == "zk:2181/kafka"
    assert found["inter.broker.listener.name"] == "PLAINTEXT"
    assert found["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert not any(key.startswith("zookeeper.ssl") for key in found)


def test_brokers_and_controllers_after_the_end_have_no_keys() -> None:
    broker = Node(101, "brokers", False, True)
    for found in (_file(_cluster(), CONTROLLER), _file(_cluster(), broker)):
        assert not any(key.startswith("zookeeper") for key in found)


def test_files_for_zookeeper_come_from_the_secret() -> None:
    cluster = _cluster({"zookeeper": TLS})
    found = _file(cluster, CONTROLLER, **{MIGRATES: "x"})
    assert found["zookeeper.ssl.truststore.location"] == "/etc/kraft-zookeeper/ca.crt"
    assert found["zookeeper.ssl.keystore.location"] == "/etc/kraft-zookeeper/tls-combined.pem"
    pool = cluster.spec.node_pools[0]
    for aspects, has in (({MIGRATES: "x"}, True), ({}, False)):
        made = pods.pod(cluster, pool, CONTROLLER, {"roles": "controller", "voters": "1", **aspects}, {})["spec"]
        secrets = [one["secret"]["secretName"] for one in made["volumes"] if "secret" in one]
        assert ("zk-tls" in secrets) is has
        assert ("/etc/kraft-zookeeper" in {one["mountPath"] for one in made["containers"][0]["volumeMounts"]}) is has


@pytest.mark.parametrize(
    ("field", "key", "variable"),
    [
        ("passwordEncoderSecret", "password.encoder.secret", "KRAFT_PASSWORD_ENCODER_SECRET"),
        ("saslSecret", "zookeeper.sasl.jaas.config", "KRAFT_ZOOKEEPER_SASL"),
    ],
)
def test_secret_values_come_from_their_secret(field: str, key: str, variable: str) -> None:
    cluster = _cluster({"zookeeper": {"connect": "zk:2181", field: "hidden"}})
    pool = cluster.spec.node_pools[0]
    made = pods.pod(cluster, pool, CONTROLLER, {"roles": "controller", "voters": "1", MIGRATES: "x"}, {})
    (container,) = made["spec"]["containers"]
    source = {"secretKeyRef": {"name": "hidden", "key": key}}
    assert {"name": variable, "valueFrom": source} in container["env"]
    assert container["command"][-2:] == ["--override", f"{key}=$({variable})"]
    assert key not in _file(cluster, CONTROLLER, **{MIGRATES: "x"})
    assert wanted_of(cluster, {}).zookeeper != wanted_of(_cluster({"zookeeper": {"connect": "zk:2181"}}), {}).zookeeper

    after = pods.pod(cluster, pool, CONTROLLER, {"roles": "controller", "voters": "1"}, {})
    assert "hidden" not in str(after["spec"])


@pytest.mark.parametrize(
    "own", [{"tls": {"secretName": "zk-tls"}}, {"passwordEncoderSecret": "encoder"}, {"saslSecret": "login"}]
)
def test_secrets_for_zookeeper_are_refused_on_one_machine(own: dict[str, Any], tmp_path: Path) -> None:
    spec = _cluster({"zookeeper": {"connect": "zk:2181", **own}}).spec
    (key,) = own
    with pytest.raises(BadResourceError, match=f"spec.migration.zookeeper.{key}: Secrets are on Kubernetes only"):
        in_mode(Path("f"), Folder(tmp_path), Record(), spec, stopped=False)


def test_zookeeper_without_client_certificates_gets_none() -> None:
    tls = {**TLS, "tls": {"secretName": "zk-tls", "clientCertificate": False}}
    assert "zookeeper.ssl.keystore.location" not in _file(_cluster({"zookeeper": tls}), CONTROLLER, **{MIGRATES: "x"})


def test_only_another_way_to_zookeeper_restarts_controllers() -> None:
    plain = wanted_of(_cluster(), {}).zookeeper
    assert wanted_of(_cluster({"phase": "Finalized", "moveReplicas": True, "brokers": [13]}), {}).zookeeper == plain
    assert wanted_of(_cluster({"zookeeper": TLS}), {}).zookeeper != plain


def test_peers_outside_reach_controllers_and_brokers() -> None:
    found = {
        one["metadata"]["name"]: one["spec"] for one in network.network_policies(_cluster({"networkPeers": PEERS}))
    }
    assert found["sample-migration"]["ingress"] == [{"from": PEERS, "ports": [{"port": 9090}]}]
    assert found["sample-migration"]["podSelector"]["matchLabels"]["kraftcluster.io/controller"] == "true"
    assert "sample-migration" not in {one["metadata"]["name"] for one in network.network_policies(_cluster())}


def test_the_phase_is_kept_in_the_record() -> None:
    record = Record(cluster_id=CLUSTER_ID, migration=MIGRATED)
    assert record_of(KRaftClusterStatus.model_validate(remembered(record))) == record
    assert "migration" not in remembered(Record())


GUIDE = ROOT / "docs/how-to/migrate-from-zookeeper-on-kubernetes.md"


def _blocks(kind: str) -> list[str]:
    """The guide's blocks of a language."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_resource_of_the_guide_is_accepted_with_and_without_tls() -> None:
    text, tls = _blocks("yaml")
    document = yaml.safe_load(text.replace("CLUSTER_ID", CLUSTER_ID))
    parsed(yaml.safe_dump(document), "f")
    document["spec"]["migration"] |= yaml.safe_load(tls)
    parsed(yaml.safe_dump(document), "f")


def test_the_brokers_of_the_guide_know_the_controllers_as_these_know_each_other() -> None:
    resource = parsed(_blocks("yaml")[0].replace("CLUSTER_ID", CLUSTER_ID), "f")
    cluster = NamedCluster(resource.name, "kraft", "uid", resource.spec)
    controllers = Node(3001, "controllers", True, False)
    ours = _file(cluster, controllers, **{MIGRATES: "x", "voters": "3001,3002,3003"})
    theirs = parse_properties(_blocks("properties")[0])
    for key in ("zookeeper.metadata.migration.enable", "controller.quorum.voters", "controller.listener.names"):
        assert theirs[key] == ours[key]
    assert theirs["listener.security.protocol.map"] == ours["listener.security.protocol.map"]
