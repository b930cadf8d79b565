"""Sessions with Apache ZooKeeper by SASL (`zookeeper.sasl.jaas.config`): by a password, and by Kerberos."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.handlers.threading import KazooTimeoutError

from kraft_node.migration.zookeeper import Create, NoAnswerError, SetData, ZooKeeper
from tests.compat.members import wait_for
from tests.compat.security.realm import REALM, needs_kdc, realm_in
from tests.compat.targets import free_ports
from tests.compat.zookeeper_cluster import old_java
from tests.golden.migration.sessions import begun, plain_client

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule required"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true"


class SaslServer:
    """One ZooKeeper server with this login module. Anyone may connect, so that ACLs can be tried."""

    def __init__(self, folder: Path, module: str, *java_options: str) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        config, logins = folder / "zoo.cfg", folder / "jaas.conf"
        config.write_text(
            f"tickTime=500\ndataDir={folder}/data\nclientPortAddress=127.0.0.1\nclientPort={self.port}\n"
            "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
            "kerberos.removeHostFromPrincipal=true\nkerberos.removeRealmFromPrincipal=true\n"
        )
        logins.write_text(f"Server {{ {module}; }};\n")
        java, *rest = old_java(folder, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config))
        command = [java, f"-Djava.security.auth.login.config={logins}", *java_options, *rest]
        with (folder / "zookeeper.log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def session(self, login: str, **more: str) -> ZooKeeper:
        """As a controller with these settings begins it."""
        texts = {"zookeeper.set.acl": "true", "zookeeper.sasl.jaas.config": login}
        return begun(self.port, texts, more)

    def is_ready(self) -> bool:
        assert self.process.poll() is None, (self.folder / "zookeeper.log").read_text()
        try:
            with plain_client(self.port):
                return True
        except KazooTimeoutError:
            return False


@contextmanager
def running(folder: Path, module: str, *java_options: str) -> Iterator[SaslServer]:
    server = SaslServer(folder, module, *java_options)
    try:
        wait_for("ZooKeeper answers", server.is_ready)
        yield server
    finally:
        server.process.kill()
        server.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslServer]:
    with running(tmp_path_factory.mktemp("zookeeper"), f'{DIGEST} user_kafka="secret of brokers"') as found:
        yield found


def check_owned(server: SaslServer, session: ZooKeeper, name: str) -> None:
    """Znodes of the session belong to SASL's `name`."""
    session.commit([Create("/config"), Create("/config/topics", b"t"), Create("/config/users", b"secret")])
    session.commit([SetData("/config/users", b"changed")])
    with plain_client(server.port) as client:
        acls, _ = client.get_acls("/config/topics")
    assert {(acl.id.scheme, acl.id.id, acl.perms) for acl in acls} == {("sasl", name, 31), ("world", "anyone", 1)}


def test_a_controller_logs_in_as_the_user_of_the_brokers(server: SaslServer) -> None:
    session = server.session(f'{DIGEST} username="kafka" password="secret of brokers";')
    check_owned(server, session, "kafka")
    session.close()


def test_a_refused_login_names_its_key(server: SaslServer) -> None:
    login = f'{DIGEST} username="kafka" password="a wrong one";'
    session = server.session(login)
    with pytest.raises(NoAnswerError, match=r"login of zookeeper\.sasl\.jaas\.config has failed"):
        session.get(["/zookeeper"])
    session.close()


@needs_kdc
def test_a_controller_logs_in_by_kerberos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with realm_in(tmp_path, monkeypatch, ["zookeeper/localhost", "kafka/localhost"]):
        own = f'{KERBEROS} storeKey=true keyTab="{tmp_path}/zookeeper.keytab" principal="zookeeper/localhost@{REALM}"'
        with running(tmp_path, own, f"-Djava.security.krb5.conf={tmp_path}/krb5.conf") as server:
            login = f'{KERBEROS} keyTab="{tmp_path}/kafka.keytab" principal="kafka/localhost@{REALM}";'
            session = server.session(login)
            check_owned(server, session, "kafka")
            session.close()
            session = server.session(login.replace("kafka", "other"))
            with pytest.raises(NoAnswerError, match="has failed"):
                session.get(["/zookeeper"])
            assert f"no ticket for other/localhost@{REALM}" in caplog.text
            session.close()
