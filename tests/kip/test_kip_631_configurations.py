"""KIP-631, "Configurations" and "Deprecated Configurations"."""

from __future__ import annotations

import pytest

from kraft_node.base.config import ConfigError, NodeConfig
from kraft_node.testing.machine import DIR
from tests.kip.cluster import Cluster

BROKER = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.quorum.voters": "3000@c:9093,3001@d:9094",
    "listeners": "INTERNAL://h:9092,EXTERNAL://h:9094",
    "advertised.listeners": "INTERNAL://h:9092,EXTERNAL://h:9094",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,SECOND:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/a,/b",
}


def without(*names: str) -> dict[str, str]:
    return {key: value for key, value in BROKER.items() if key not in names}


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("initial.broker.registration.timeout.ms", 60_000),
        ("broker.heartbeat.interval.ms", 2_000),  # 3 s in the draft
        ("broker.session.timeout.ms", 9_000),  # 18 s in the draft
        ("controller.quorum.fetch.timeout.ms", 2_000),
        ("controller.quorum.election.timeout.ms", 1_000),
        ("controller.quorum.election.backoff.max.ms", 1_000),
        ("controller.quorum.request.timeout.ms", 2_000),
        ("controller.quorum.retry.backoff.ms", 20),
    ],
)
def test_timeouts_have_the_names_of_the_draft_and_the_defaults_of_the_release(name: str, release: int) -> None:
    assert NodeConfig.parse(BROKER).int(name) == release


def test_process_roles_must_be_given() -> None:
    """Without them a node of the draft runs in legacy mode, which no longer exists."""
    with pytest.raises(ConfigError, match=r"process\.roles"):
        NodeConfig.parse(without("process.roles"))


@pytest.mark.parametrize("roles", ["broker", "controller", "broker,controller"])
def test_the_roles_are_broker_controller_or_both(roles: str) -> None:
    listeners = {
        "broker": "INTERNAL://h:9092",
        "controller": "CONTROLLER://h:9093",
        "broker,controller": "INTERNAL://h:9092,CONTROLLER://h:9093",
    }[roles]
    texts = {**without("advertised.listeners", "inter.broker.listener.name"), "process.roles": roles}
    if "broker" in roles:
        texts["inter.broker.listener.name"] = "INTERNAL"
    if "controller" in roles:
        texts["controller.quorum.voters"] = "1@h:9093"
    config = NodeConfig.parse({**texts, "listeners": listeners})
    assert (config.is_broker, config.is_controller) == ("broker" in roles, "controller" in roles)


def test_other_roles_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"process\.roles"):
        NodeConfig.parse({**BROKER, "process.roles": "observer"})


def test_controller_listener_names_are_required() -> None:
    with pytest.raises(ConfigError, match=r"controller\.listener\.names"):
        NodeConfig.parse(without("controller.listener.names"))


def test_brokers_use_the_first_controller_listener() -> None:
    config = NodeConfig.parse({**BROKER, "controller.listener.names": "SECOND,CONTROLLER"})
    assert config.controller_listener_names[0] == "SECOND"


def test_several_listeners_can_be_configured() -> None:
    assert [e.name for e in NodeConfig.parse(BROKER).broker_listeners] == ["INTERNAL", "EXTERNAL"]


def test_the_mechanism_for_controllers_is_configured_and_is_gssapi_by_default() -> None:
    """sasl.mechanism.controller.protocol; its mechanisms are served."""
    assert NodeConfig.parse(BROKER).string("sasl.mechanism.controller.protocol") == "GSSAPI"


def test_voters_are_a_list_of_id_host_and_port() -> None:
    voters = NodeConfig.parse(BROKER).voters
    assert [(voter.node_id, voter.host, voter.port) for voter in voters] == [(3000, "c", 9093), (3001, "d", 9094)]
    with pytest.raises(ConfigError, match=r"controller\.quorum\.voters"):
        NodeConfig.parse({**BROKER, "controller.quorum.voters": "c:9093"})


def test_brokers_and_controllers_need_the_quorum() -> None:
    """Its voters, or in the release preferably some controller.quorum.bootstrap.servers."""
    with pytest.raises(ConfigError, match=r"controller\.quorum\."):
        NodeConfig.parse(without("controller.quorum.voters"))
    NodeConfig.parse({**without("controller.quorum.voters"), "controller.quorum.bootstrap.servers": "c:9093"})


def test_node_id_replaces_broker_id() -> None:
    assert NodeConfig.parse(BROKER).node_id == 1
    assert NodeConfig.parse({**without("node.id"), "broker.id": "7"}).node_id == 7


def test_the_metadata_log_is_in_its_directory_or_the_first_log_directory() -> None:
    assert NodeConfig.parse(BROKER).metadata_log_dir == "/a"
    assert NodeConfig.parse({**BROKER, "metadata.log.dir": "/m"}).metadata_log_dir == "/m"
    cluster = Cluster(1, 1, per_machine={"b1": {"metadata.log.dir": "/m"}})
    assert "__cluster_metadata-0" in cluster["b1"].disk.listdir("/m")
    assert "__cluster_metadata-0" not in cluster["b1"].disk.listdir(DIR)


@pytest.mark.parametrize("name", ["control.plane.listener.name", "broker.id.generation.enable"])
def test_deprecated_configurations_have_no_effect(name: str) -> None:
    """The third, zookeeper.set.acl, acts in migrations from ZooKeeper (KIP-866)."""
    config = NodeConfig.parse({**BROKER, name: "true"})
    assert name in config.unknown
    assert any(name in warning for warning in config.warnings)


def test_the_largest_backoff_between_requests_was_never_released() -> None:
    """controller.quorum.retry.backoff.max.ms: like Kafka, retries wait for the one fixed back-off."""
    assert (
        "controller.quorum.retry.backoff.max.ms"
        in NodeConfig.parse({**BROKER, "controller.quorum.retry.backoff.max.ms": "1"}).unknown
    )
