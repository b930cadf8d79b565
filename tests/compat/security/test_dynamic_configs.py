"""Apache Kafka's kafka-configs exchanges stores of a running listener; wrong stores are refused; connections stay."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraft_protocol.client.blocking import BlockingConnection
from kraft_protocol.client.properties import client_security
from kraft_protocol.client.session import Software
from kraft_protocol.wire.messages import MetadataRequest
from tests.certificates import Authority, Issued
from tests.compat.members import wait_for
from tests.compat.security.secured import PASSWORDS, Secured, jaas, lone
from tests.compat.tools import Done, run_tool

CLIENT = "kafka-configs exchanges certificates"
XDIST_GROUP = "dynamic-security"
LISTENER = "listener.name.sasl."


@dataclass
class Served:
    """A server whose SASL_SSL listener has a certificate of `authority`."""

    secured: Secured
    authority: Authority
    folder: Path

    def properties(self) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas("PLAIN", username="ann", password=PASSWORDS["ann"]),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.path),
        }

    def connect(self) -> BlockingConnection:
        return BlockingConnection(
            "127.0.0.1", self.secured.sasl_port, software=Software("t", "test", "1"), versions=None,
            connect_s=30, request_s=30, security=client_security(self.properties()),
        )  # fmt: skip

    def serial(self) -> int:
        """The serial number of the certificate that new connections get."""
        context = ssl.create_default_context(cafile=str(self.authority.path))
        with (
            socket.create_connection(("127.0.0.1", self.secured.sasl_port), timeout=30) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1") as tls,
        ):
            return int(str((tls.getpeercert() or {})["serialNumber"]), 16)

    def alter(self, *arguments: str, entity: tuple[str, ...] = ("--entity-name", "1")) -> Done:
        """Run kafka-configs over the listener itself."""
        path = self.folder / "admin.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.properties().items()))
        where = ("--bootstrap-server", self.secured.bootstrap, "--command-config", str(path))
        words = (*where, "--alter", "--entity-type", "brokers", *entity, *arguments)
        return run_tool("kafka.admin.ConfigCommand", *words, check=False)

    def use(self, issued: Issued) -> Done:
        return self.alter("--add-config", f"{LISTENER}ssl.keystore.location={issued.pem}")


@pytest.fixture(scope="module")
def served(server_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("dynamic")
    authority = Authority(folder / "certificates")
    stores = authority.issue("CN=node,O=Example", file="first").stores()
    overrides = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        **{f"{LISTENER}{key}": value for key, value in stores.items()},
    }
    secured = lone(server_name, folder / "node", ["PLAIN"], overrides)
    secured.target.start()
    yield Served(secured, authority, folder)
    secured.target.stop()


def test_a_renewed_certificate_is_used_and_open_connections_stay(served: Served) -> None:
    with contextlib.closing(served.connect()) as old:
        renewed = served.authority.issue("CN=node,O=Example", file="renewed")
        done = served.use(renewed)
        assert done.code == 0, done.text
        wait_for("the new certificate", lambda: served.serial() == renewed.certificate.serial_number)
        assert old.request(MetadataRequest(topics=[])).brokers
        with contextlib.closing(served.connect()) as new:
            assert new.request(MetadataRequest(topics=[])).brokers
        # The same path with another content: kafka-configs sets the same value again.
        again = served.authority.issue("CN=node,O=Example", file="again")
        text = again.key_text + again.chain_text
        renewed.pem.write_text(text)
        done = served.use(renewed)
        assert done.code == 0, done.text
        wait_for("the certificate of the changed file", lambda: served.serial() == again.certificate.serial_number)
        assert old.request(MetadataRequest(topics=[])).brokers


def test_wrong_stores_are_refused_and_the_certificate_stays(served: Served) -> None:
    right = served.authority.issue("CN=node,O=Example", file="right")
    done = served.use(right)
    assert done.code == 0, done.text
    wait_for("the certificate", lambda: served.serial() == right.certificate.serial_number)
    other = served.authority.issue("CN=other,O=Example", file="other")
    fewer = served.authority.issue("CN=node,O=Example", names=("127.0.0.1",), file="fewer")
    damaged = served.folder / "damaged.pem"
    damaged.write_text("-----BEGIN NOTHING-----\n")
    for value in (other.pem, fewer.pem, damaged, served.folder / "missing.pem"):
        done = served.alter("--add-config", f"{LISTENER}ssl.keystore.location={value}")
        assert done.code != 0, (value, done.text)
        assert "InvalidRequestException" in done.text or "InvalidConfigurationException" in done.text, done.text
    assert served.serial() == right.certificate.serial_number


def test_client_authentication_of_an_open_listener_is_stored_and_has_no_effect_on_it(served: Served) -> None:
    done = served.alter("--add-config", f"{LISTENER}ssl.client.auth=required")
    assert done.code == 0, done.text
    try:
        with contextlib.closing(served.connect()) as connection:
            assert connection.request(MetadataRequest(topics=[])).brokers
    finally:
        served.alter("--delete-config", f"{LISTENER}ssl.client.auth")
