"""GSSAPI with a KDC of MIT Kerberos: kcat (Cyrus SASL) and our own client against our node."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.members import wait_for
from tests.compat.security.secured import Secured, jaas, lone
from tests.compat.targets import free_ports

CLIENT = "SASL/GSSAPI"
REALM = "T.REALM"
KDC = shutil.which("krb5kdc", path="/usr/sbin:/sbin:/usr/bin")
pytestmark = pytest.mark.skipif(KDC is None, reason="needs krb5kdc (apt install krb5-kdc krb5-admin-server)")


@pytest.fixture
def realm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with keytabs of `kafka/localhost` and `eve`, while their KDC runs."""
    pytest.importorskip("gssapi", exc_type=ImportError)
    (port,) = free_ports(1)
    (tmp_path / "krb5.conf").write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_canonicalize_hostname = false\n"
        f" rdns = false\n udp_preference_limit = 1\n[realms]\n {REALM} = {{\n kdc = 127.0.0.1:{port}\n }}\n"
    )
    (tmp_path / "kdc.conf").write_text(
        f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n[realms]\n"
        f" {REALM} = {{\n database_name = {tmp_path}/principal\n key_stash_file = {tmp_path}/stash\n }}\n"
    )
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    monkeypatch.setenv("KRB5_KDC_PROFILE", str(tmp_path / "kdc.conf"))
    monkeypatch.setenv("KRB5RCACHEDIR", str(tmp_path))
    folder = str(Path(str(KDC)).parent)

    def run(program: str, *words: str) -> None:
        subprocess.run([f"{folder}/{program}", *words], check=True, capture_output=True, timeout=60)

    run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
    for principal in ("kafka/localhost", "eve"):
        keytab = tmp_path / f"{principal.partition('/')[0]}.keytab"
        run("kadmin.local", "-q", f"addprinc -randkey {principal}@{REALM}")
        run("kadmin.local", "-q", f"ktadd -k {keytab} {principal}@{REALM}")
    with (tmp_path / "kdc.log").open("wb") as log:
        kdc = subprocess.Popen([str(KDC), "-n", "-P", str(tmp_path / "pid")], stdout=log, stderr=log)
    wait_for("the KDC", lambda: b"starting" in (tmp_path / "kdc.log").read_bytes(), 30)
    yield tmp_path
    kdc.terminate()
    kdc.wait(30)


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
