"""TLS of a node by its configuration, and the exchange of certificates while it runs (`server.tls.node_tls`)."""

from __future__ import annotations

import os
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kraft_node.base.config import NodeConfig
from kraft_node.base.config.dynamic import BrokerConfig, check_change
from kraft_node.base.config.errors import ConfigError
from kraft_node.server.tls.node_tls import NodeTls, ssl_texts
from tests.certificates import PASSWORD, Authority, Issued
from tests.unit.server.connections.fakes import World
from tests.unit.tls.test_transport import Lanes

BASE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "CLIENT://127.0.0.1:0,CTL://127.0.0.1:0",
    "controller.listener.names": "CTL",
    "inter.broker.listener.name": "CLIENT",
    "listener.security.protocol.map": "CLIENT:SSL,CTL:SSL",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "log.dirs": "/unused",
}


class Node:
    """The TLS of a node that runs."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.world = World({})
        self.lanes = Lanes()
        env: Any = replace(self.world.env, background=self.lanes)
        self.config = NodeConfig.parse({**BASE, **texts})
        self.values = BrokerConfig(self.config)
        self.tls = NodeTls(env, self.config)
        self.values.checks.append(self.tls.check)
        self.listener = self.tls.listener("CLIENT")

    def alter(self, own: dict[str, str]) -> None:
        """Alter the node's own dynamic configuration, as kafka-configs does."""
        overrides = {"listener.name.client." + name: text for name, text in own.items()}
        for remainder in check_change(self.values, overrides, per_broker=True):
            remainder()
        self.values.update(overrides, {})
        self.tls.follow(self.values)
        while self.lanes.run():
            pass

    def look(self) -> None:
        """Let the time of a look at the files come."""
        self.world.scheduler.fire()
        while self.lanes.run():
            pass

    @property
    def serial(self) -> int:
        """The serial number of the certificate in use."""
        from cryptography import x509

        keys = self.listener.contexts.keys
        assert keys is not None
        return x509.load_der_x509_certificate(keys.keys[0].chain[0]).serial_number


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def old(authority: Authority) -> Issued:
    return authority.issue("CN=node", file="old")


@pytest.fixture
def new(authority: Authority) -> Issued:
    return authority.issue("CN=node", file="new")


def replace_file(path: Path, text: str) -> None:
    """Replace a file as Kubernetes does, with a later time."""
    later = path.stat().st_mtime + 5
    path.write_text(text)
    os.utime(path, (later, later))


def test_a_listeners_own_values_take_precedence(old: Issued) -> None:
    own = {"listener.name.client.ssl.client.auth": "required", "ssl.client.auth": "requested"}
    node = Node({**old.stores(), **own})
    assert node.listener.contexts.server.verify_mode == ssl.CERT_REQUIRED
    assert node.tls.listener("CTL").contexts.server.verify_mode == ssl.CERT_OPTIONAL
    node.values.update({"listener.name.client.ssl.key.password": "x"}, {})
    assert ssl_texts(node.values, node.config, "CLIENT")["ssl.key.password"] == "x"


def test_client_auth_of_sasl_ssl_needs_the_prefix(old: Issued) -> None:
    texts = {**BASE, **old.stores(), "ssl.client.auth": "required", "security.inter.broker.protocol": "PLAINTEXT"}
    del texts["inter.broker.listener.name"]
    texts["listeners"] = "PLAINTEXT://127.0.0.1:0,S://127.0.0.1:0,CTL://127.0.0.1:0"
    texts["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,S:SASL_SSL,CTL:SSL"
    config = NodeConfig.parse(texts)
    assert "ssl.client.auth" not in ssl_texts(config, config, "S")
    config = NodeConfig.parse({**texts, "listener.name.s.ssl.client.auth": "required"})
    assert ssl_texts(config, config, "S")["ssl.client.auth"] == "required"


def test_an_unusable_store_names_listener_and_key(old: Issued) -> None:
    with pytest.raises(ConfigError, match=r"^listener CLIENT: ssl.keystore.location: cannot read /missing") as caught:
        Node({**old.stores(), "ssl.keystore.location": "/missing"})
    assert caught.value.key == "ssl.keystore.location"


def test_a_changed_file_is_used_for_new_connections(old: Issued, new: Issued) -> None:
    node = Node(old.stores())
    before, contexts = node.serial, node.listener.contexts
    node.look()
    assert node.listener.contexts is contexts
    replace_file(old.pem, new.key_text + new.chain_text)
    node.look()
    assert node.serial != before and node.tls.reloads == 1


def test_a_damaged_file_leaves_the_present_certificate_until_it_is_repaired(old: Issued, new: Issued) -> None:
    node = Node(old.stores())
    before = node.serial
    replace_file(old.pem, "half a file")
    node.look()
    assert node.serial == before and node.tls.reloads == 0
    replace_file(old.pem, new.key_text + new.chain_text)
    node.look()
    assert node.serial != before


def test_a_changed_file_with_another_name_is_refused(old: Issued, authority: Authority) -> None:
    node = Node(old.stores())
    before, other = node.serial, authority.issue("CN=other")
    replace_file(old.pem, other.key_text + other.chain_text)
    node.look()
    assert node.serial == before and node.tls.reloads == 0


def test_the_check_of_an_alteration_reads_no_store_before_its_lane_runs(old: Issued) -> None:
    node = Node(old.stores())
    missing = {"listener.name.client.ssl.keystore.location": "/missing"}
    (remainder,) = check_change(node.values, missing, per_broker=True)
    with pytest.raises(ConfigError, match="cannot read /missing"):
        remainder()
    assert check_change(node.values, {"log.cleaner.threads": "2"}, per_broker=True) == []


def test_an_alteration_exchanges_the_key_store(old: Issued, new: Issued) -> None:
    node = Node(old.stores())
    before = node.serial
    node.alter({"ssl.keystore.location": str(new.pem)})
    assert node.serial != before


def test_an_alteration_to_the_same_value_reads_a_changed_file(old: Issued, new: Issued) -> None:
    node = Node(old.stores())
    before = node.serial
    replace_file(old.pem, new.key_text + new.chain_text)
    node.alter({"ssl.keystore.location": str(old.pem)})
    assert node.serial != before


def test_an_alteration_that_breaks_a_rule_is_refused(old: Issued, authority: Authority, tmp_path: Path) -> None:
    node = Node(old.stores())
    before, other = node.serial, authority.issue("CN=other")
    stranger = Authority(tmp_path / "s", "stranger").issue("CN=node")
    for path, reason in (
        (other.pem, "distinguished name"),
        (stranger.pem, "cannot connect"),
        ("/missing", "cannot read"),
    ):
        with pytest.raises(ConfigError, match=reason):
            node.alter({"ssl.keystore.location": str(path)})
    assert node.serial == before


# Key -> an alteration of it, and what shows its effect.
EFFECTS: dict[str, tuple[str, Any]] = {
    "ssl.cipher.suites": (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        lambda c: c.server.maximum_version.name == "TLSv1_2",
    ),
    "ssl.client.auth": ("required", lambda c: c.server.verify_mode == ssl.CERT_REQUIRED),
    "ssl.enabled.protocols": ("TLSv1.2", lambda c: c.server.maximum_version.name == "TLSv1_2"),
    "ssl.endpoint.identification.algorithm": ("", lambda c: not c.client.check_hostname),
    "ssl.protocol": ("TLSv1.2", lambda c: c.server.maximum_version.name == "TLSv1_2"),
}
REFUSED = (
    "ssl.engine.factory.class",
    "ssl.keymanager.algorithm",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
)


@pytest.mark.parametrize("key", EFFECTS)
def test_an_altered_key_acts_on_new_connections(old: Issued, key: str) -> None:
    node = Node(old.stores())
    value, shows = EFFECTS[key]
    assert not shows(node.listener.contexts)
    node.alter({key: value})
    assert shows(node.listener.contexts)


@pytest.mark.parametrize("key", REFUSED)
def test_an_alteration_that_needs_a_jvm_is_refused(old: Issued, key: str) -> None:
    node = Node(old.stores())
    with pytest.raises(ConfigError, match="needs a JVM"):
        node.alter({key: "org.apache.kafka.Special"})


def test_stores_of_another_format_are_exchanged_by_alterations(old: Issued, new: Issued, authority: Authority) -> None:
    node = Node(old.stores())
    before = node.serial
    node.alter(
        {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(new.p12), "ssl.keystore.password": PASSWORD}
    )
    assert node.serial != before
    inline = {"ssl.keystore.key": new.key_text, "ssl.keystore.certificate.chain": new.chain_text}
    inline |= {"ssl.truststore.certificates": authority.path.read_text()}
    kinds = {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
    node = Node({**inline, **kinds})
    encrypted = {"ssl.keystore.key": old.encrypted_key_text(), "ssl.keystore.certificate.chain": old.chain_text}
    node.alter({**encrypted, "ssl.key.password": PASSWORD})
    assert node.serial == before


def test_trust_stores_are_exchanged_by_alterations(old: Issued, tmp_path: Path, authority: Authority) -> None:
    both = tmp_path / "both.pem"
    both.write_text(authority.path.read_text() + Authority(tmp_path / "s", "next").path.read_text())
    node = Node(old.stores())
    node.alter({"ssl.truststore.location": str(both)})
    trust = node.listener.contexts.trust
    assert trust is not None and len(trust.trusted) == 2
    with pytest.raises(ConfigError, match=r"ssl.truststore.password"):
        node.alter({"ssl.truststore.password": "x"})
    with pytest.raises(ConfigError, match=r"ssl.truststore.location"):
        node.alter({"ssl.truststore.type": "PKCS12"})
