"""Sessions of ZooKeeper as a controller's configuration says, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.base.config import ConfigError, NodeConfig
from kraft_node.base.config.zookeeper import zookeeper_settings
from kraft_node.runtime.zookeeper import kazoo_sessions

TEXTS = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.voters": "1@h:1",
    "listeners": "CONTROLLER://h:1",
    "controller.listener.names": "CONTROLLER",
    "zookeeper.metadata.migration.enable": "true",
    "zookeeper.connect": "z:2181",
    "zookeeper.ssl.client.enable": "true",
    "zookeeper.ssl.truststore.location": "/ca.pem",
}
HOST_NAMES = "zookeeper.ssl.endpoint.identification.algorithm"


class FakeClient:
    """Keeps the options of kazoo's client."""

    made: dict[str, Any]

    def __init__(self, **options: Any) -> None:
        FakeClient.made = options

    def add_listener(self, _: Any) -> None: ...

    def start(self, timeout: float) -> None: ...


@pytest.mark.parametrize(("text", "expected"), [(None, True), ("https", True), ("", False)])
def test_the_certificate_of_zookeeper_must_have_the_name_of_its_server(
    text: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo checks no name by default, and trusts the authorities of the system: any valid certificate was enough."""
    monkeypatch.setattr("kraft_node.runtime.zookeeper.KazooClient", FakeClient)
    settings = zookeeper_settings(NodeConfig.parse(TEXTS if text is None else {**TEXTS, HOST_NAMES: text}))
    assert settings is not None
    kazoo_sessions(settings)()
    made = FakeClient.made
    assert made["check_hostname"] is expected
    assert (made["use_ssl"], made["verify_certs"], made["ca"]) == (True, True, "/ca.pem")


def test_an_unknown_way_to_check_the_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=f"SHA.*{HOST_NAMES}"):
        zookeeper_settings(NodeConfig.parse({**TEXTS, HOST_NAMES: "SHA"}))


DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


def with_login(text: str, **more: str) -> dict[str, Any]:
    """The options of kazoo's client with this login module."""
    settings = zookeeper_settings(NodeConfig.parse({**TEXTS, "zookeeper.sasl.jaas.config": text, **more}))
    assert settings is not None
    assert "hidden" not in repr(settings)
    kazoo_sessions(settings)()
    return FakeClient.made


def test_a_login_module_is_how_kazoo_logs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft_node.runtime.zookeeper.KazooClient", FakeClient)
    made = with_login(f'{DIGEST} required username="kafka" password="hidden";', **{"zookeeper.set.acl": "true"})
    assert made["use_ssl"]
    assert made["sasl_options"] == {"mechanism": "DIGEST-MD5", "username": "kafka", "password": "hidden"}
    made = with_login(f'{KERBEROS} required serviceName="zk" principal="kafka@REALM";')
    assert {**made["sasl_options"], "entry": None} == {"mechanism": "GSSAPI", "service": "zk", "entry": None}
    assert made["sasl_options"]["entry"]["principal"] == "kafka@REALM"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f'{DIGEST} required username="kafka" password="hidden"', "semicolon"),
        (f'{DIGEST} required username="kafka";', "the option password is missing"),
        (f'{DIGEST} required password="hidden";', "the option username is missing"),
        ('a.PlainLoginModule required password="hidden";', "not a.PlainLoginModule"),
    ],
)
def test_a_wrong_login_module_is_refused_without_its_password(text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=rf"zookeeper\.sasl\.jaas\.config.*{fault}") as caught:
        zookeeper_settings(NodeConfig.parse({**TEXTS, "zookeeper.sasl.jaas.config": text}))
    assert "hidden" not in str(caught.value)
