"""Pipelines with `clusterRef` to secured clusters: the listener, the credentials, and clear refusals."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kraft_operator.pipelines import grants
from kraft_operator.pipelines.kinds import KINDS
from kraft_operator.pipelines.manifests import FILE
from tests.unit.operator.pipelines.test_pipelines import World
from tests.unit.operator.sample import ROOT

TLS = {"security": "Tls"}
USER = {"cluster": "sample", "authentication": {"type": "ScramSha512"}}


def world(kind: str = "KafkaTable", *, listeners: list[dict[str, Any]] | None = None, **changes: Any) -> World:
    """A pipeline of the cluster of samples/secure.yaml, which is called sample here."""
    found = World(kind, **changes)
    spec = yaml.safe_load((ROOT / "deploy/samples/secure.yaml").read_text())["spec"]
    found.put("KRaftCluster", "sample", spec=spec | ({"listeners": listeners} if listeners else {}), status=TLS)
    return found


def user(found: World, status: dict[str, Any] | None = None, **changes: Any) -> None:
    present = {"secret": "reader", "observedGeneration": 1}
    found.put("KRaftUser", "reader", spec={**USER, **changes}, status=present if status is None else status)


def allow(found: World, secret: str) -> None:
    found.api.objects["ServiceAccount", "demo", grants.ACCOUNT]["secrets"].append({"name": secret})


def document(found: World) -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load(found.made("ConfigMap")[0]["data"][FILE])["spec"]
    return spec


def refusal(found: World) -> tuple[str, str]:
    """Run a pass; the reason and the message of a refused pipeline, of which nothing was made."""
    found.run()
    status, reason, message = found.conditions()["Degraded"]
    assert status == "True"
    assert not found.made("ConfigMap")
    return reason, message


@pytest.mark.parametrize("kind", ["KafkaTable", "KafkaScrub"])
@pytest.mark.parametrize(("type_", "port"), [("ScramSha512", 9094), ("ScramSha256", 9094), ("MutualTls", 9093)])
def test_a_user_gives_the_listener_and_the_credentials(kind: str, type_: str, port: int) -> None:
    found = world(kind, security={"user": "reader"})
    user(found, authentication={"type": type_})
    reason, message = refusal(found)
    assert reason == "SecretNotAllowed"
    assert "security.user names the Secret reader" in message
    allow(found, "reader")
    found.run()
    assert found.conditions()["Degraded"][0] == "False"
    spec = document(found)
    assert spec["bootstrapServers"] == f"sample-bootstrap.demo.svc:{port}"
    assert spec["security"] == {"propertiesFile": "/etc/kraft-security/client.properties"}
    volumes = found.pod_template["spec"]["volumes"]
    assert [one["secret"]["secretName"] for one in volumes if one["name"] == "security"] == ["reader"]


def test_the_listener_that_the_user_names_is_taken() -> None:
    more = {"name": "outside", "port": 9095, "type": "LoadBalancer", "authentication": "ScramSha512"}
    listeners = [{"name": "passwords", "port": 9094, "authentication": "ScramSha512"}, more]
    found = world(listeners=listeners, security={"user": "reader"})
    user(found, listener="outside")
    allow(found, "reader")
    found.run()
    assert document(found)["bootstrapServers"] == "sample-outside.demo.svc:9095"


@pytest.mark.parametrize(
    ("changes", "status", "reason", "words"),
    [
        ({"cluster": "other"}, None, "UserOfAnotherCluster", "is a user of KRaftCluster other, not of sample"),
        ({"listener": "tls"}, None, "NoListener", "the listener tls of KRaftCluster sample does not exist"),
        ({}, {}, "UserNotReady", "KRaftUser reader has no Secret: the operator has not made"),
        (
            {},
            {
                "conditions": [
                    {"type": "Ready", "status": "False", "reason": "UserExists", "message": "somebody else's"}
                ]
            },
            "UserNotReady",
            "KRaftUser reader has no Secret: somebody else's",
        ),
        ({"authentication": {"type": "None"}}, None, "NotUnderstood", "KRaftUser reader: spec.authentication.type"),
    ],
)
def test_a_user_that_does_not_fit_is_named(
    changes: dict[str, Any], status: dict[str, Any] | None, reason: str, words: str
) -> None:
    found = world(security={"user": "reader"})
    user(found, status, **changes)
    assert refusal(found)[0] == reason
    assert words in found.conditions()["Degraded"][2]


def test_a_missing_user_is_named_until_it_exists() -> None:
    found = world(security={"user": "reader"})
    allow(found, "reader")
    assert refusal(found) == ("UserNotFound", "security.user: KRaftUser reader does not exist in demo")
    user(found)
    found.run()
    assert found.conditions()["Degraded"][0] == "False"


@pytest.mark.parametrize("kind", ["KafkaTable", "KafkaScrub"])
def test_a_pipeline_without_credentials_is_refused_where_they_are_needed(kind: str) -> None:
    """Its driver tried to connect forever."""
    reason, message = refusal(world(kind))
    assert reason == "CredentialsMissing"
    assert message.endswith("name a KRaftUser in security.user")


def test_a_pipeline_without_credentials_takes_the_listener_that_needs_none() -> None:
    plain = {"name": "plain", "port": 9092, "tls": False}
    found = world(listeners=[{"name": "tls", "port": 9093}, plain])
    found.run()
    assert document(found)["bootstrapServers"] == "sample-bootstrap.demo.svc:9092"


@pytest.mark.parametrize(
    "changes",
    [{"security": {"secret": "reader"}}, {"kafka": {"kafka.security.protocol": "SSL"}}],
    ids=["secret", "kafka"],
)
def test_credentials_of_the_author_are_for_the_first_internal_listener(changes: dict[str, Any]) -> None:
    found = world(**changes)
    allow(found, "reader")
    found.run()
    assert document(found)["bootstrapServers"] == "sample-bootstrap.demo.svc:9093"


@pytest.mark.parametrize("kind", KINDS)
def test_a_cluster_without_tls_needs_no_credentials(kind: str) -> None:
    found = World(kind)
    found.run()
    assert document(found)["bootstrapServers"] == "sample-bootstrap.demo.svc:9092"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("security", [None, {"tls": "Disabled"}], ids=["unspoken", "plaintext"])
def test_a_pipeline_waits_for_a_cluster_whose_mode_is_unknown(kind: str, security: dict[str, Any] | None) -> None:
    """The cluster counted as plaintext, so the driver started without TLS beside a cluster that then began with it."""
    found = World(kind)
    cluster = found.api.objects["KRaftCluster", "demo", "sample"]
    cluster["status"] = {}
    if security is not None:
        cluster["spec"]["security"] = security
    text = "KRaftCluster sample is not ready: the operator has not begun it yet"
    assert refusal(found) == ("ClusterNotReady", text)
    waits_s = [found.run() for _ in range(7)]
    assert waits_s == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    cluster["status"] = {"security": "Plaintext"}
    found.run()
    assert found.conditions()["Degraded"][0] == "False"
    assert document(found)["bootstrapServers"] == "sample-bootstrap.demo.svc:9092"


def test_a_cluster_that_cannot_begin_says_why_in_its_pipeline() -> None:
    found = World("KafkaTable")
    condition = {"type": "Degraded", "status": "True", "reason": "SecurityUnknown", "message": "its record is lost"}
    found.api.objects["KRaftCluster", "demo", "sample"]["status"] = {"conditions": [condition]}
    assert refusal(found) == ("ClusterNotReady", "KRaftCluster sample is not ready: its record is lost")


def test_a_driver_keeps_running_while_the_mode_is_unknown() -> None:
    """A status that was lost, as after a restore, says nothing about the driver."""
    found = World("KafkaTable")
    found.run()
    before = found.made("Deployment"), found.made("ConfigMap")
    found.api.objects["KRaftCluster", "demo", "sample"]["status"] = {}
    found.run()
    assert found.conditions()["Degraded"][1] == "ClusterNotReady"
    assert (found.made("Deployment"), found.made("ConfigMap")) == before


def test_an_archive_of_a_cluster_with_tls_needs_a_user_of_the_controllers() -> None:
    """A certificate of the clients' authority opens no controller, so the archive's driver failed in a handshake."""
    found = world("KafkaMetadataArchive", security={"user": "reader"})
    user(found)
    allow(found, "reader")
    reason, message = refusal(found)
    assert reason == "ControllersClosed"
    assert "name a KRaftUser with controllers: true in security.user" in message
    user(found, {"secret": "reader", "observedGeneration": 0}, controllers=True)
    reason, message = refusal(found)  # its Secret may not have the file yet, and the run would fail
    assert reason == "UserNotReady"
    assert "has not added the certificate for controllers" in message
    user(found, controllers=True)
    found.run()
    folder = "/etc/kraft-security"
    files = {"propertiesFile": f"{folder}/client.properties"}
    assert document(found)["security"] == {**files, "controllerPropertiesFile": f"{folder}/controllers.properties"}
    found.resource["spec"]["security"] = {"user": "reader", "controllerPropertiesFile": "/archive/c.properties"}
    found.run()
    assert document(found)["security"] == {**files, "controllerPropertiesFile": "/archive/c.properties"}


def test_a_malformed_cluster_is_named() -> None:
    """The pass failed again and again, and the status did not say why."""
    found = world()
    found.api.objects["KRaftCluster", "demo", "sample"]["spec"]["listeners"] = [{"name": "x"}]
    reason, message = refusal(found)
    assert reason == "NotUnderstood"
    assert message.startswith("KRaftCluster sample: spec.listeners[0].port is missing")
