"""GSSAPI with a KDC of MIT Kerberos: kcat (Cyrus SASL) and our own client against our node."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.security.realm import REALM, needs_kdc, realm_in
from tests.compat.security.secured import Secured, jaas, lone

CLIENT = "SASL/GSSAPI"
pytestmark = needs_kdc


@pytest.fixture
def realm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with keytabs of `kafka/localhost` and `eve`, while their KDC runs."""
    with realm_in(tmp_path, monkeypatch, ["kafka/localhost", "eve"]):
        yield tmp_path


@pytest.fixture
def server(realm: Path) -> Iterator[Secured]:
    key = "listener.name.sasl.gssapi.sasl.jaas.config"
    principal = f"kafka/localhost@{REALM}"
    entry = jaas("GSSAPI", principal=principal, useKeyTab="true", keyTab=str(realm / "kafka.keytab"))
    secured = lone("kraftcluster", realm / "node", ["PLAIN", "GSSAPI"], {key: entry})
    secured.target.start()
    yield secured
    secured.target.stop()


def test_kcat_authenticates_by_its_ticket(realm: Path, server: Secured) -> None:
    keytab = realm / "eve.keytab"
    settings = (
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=GSSAPI",
        "sasl.kerberos.service.name=kafka",
        f"sasl.kerberos.principal=eve@{REALM}",
        f"sasl.kerberos.kinit.cmd=kinit -k -t {keytab} eve@{REALM}",
    )
    words = [part for setting in settings for part in ("-X", setting)]
    command = ["kcat", "-b", f"localhost:{server.sasl_port}", "-L", "-m", "10", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ})
    if "missing a GSSAPI module" in done.stderr:
        pytest.skip("needs libsasl2-modules-gssapi-mit")
    assert done.returncode == 0, done.stderr
    assert "broker 1 at" in done.stdout


def test_our_client_authenticates_by_a_keytab(realm: Path, server: Secured) -> None:
    from kraft_protocol.client.blocking import BlockingConnection
    from kraft_protocol.client.security import ClientSecurity
    from kraft_protocol.client.session import Software
    from kraft_protocol.sasl.gssapi import GssapiCredentials
    from kraft_protocol.sasl.login import SaslLogin
    from kraft_protocol.wire.messages import MetadataRequest

    options = {"principal": f"eve@{REALM}", "useKeyTab": "true", "keyTab": str(realm / "eve.keytab")}
    credentials = GssapiCredentials("kafka", options)
    connection = BlockingConnection(
        "localhost",
        server.sasl_port,
        software=Software("t", "test", "1"),
        versions=None,
        connect_s=10,
        request_s=20,
        security=ClientSecurity("SASL_PLAINTEXT", login=lambda host: SaslLogin(credentials, host)),
    )
    try:
        assert [broker.node_id for broker in connection.request(MetadataRequest(topics=[])).brokers] == [1]
    finally:
        connection.close()
