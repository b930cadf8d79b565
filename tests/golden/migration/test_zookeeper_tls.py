"""Sessions with Apache ZooKeeper over TLS with certificates of both sides; ACLs of znodes (`zookeeper.set.acl`)."""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.handlers.threading import KazooTimeoutError

from kraft_node.base.config.errors import ConfigError
from kraft_node.migration.zookeeper import Create, NoAnswerError, SetData, ZooKeeper
from tests.certificates import Authority, Issued
from tests.compat.members import wait_for
from tests.compat.targets import free_ports
from tests.compat.zookeeper_cluster import old_java
from tests.golden.migration.sessions import begun, plain_client

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]


class TlsServer:
    """One ZooKeeper server with a plain port and a port of TLS that wants certificates of clients."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.authority = Authority(folder)
        self.plain, self.secure = free_ports(2)
        own = self.identity("CN=zookeeper")
        config = folder / "zoo.cfg"
        config.write_text(
            f"tickTime=500\ndataDir={folder}/data\nclientPortAddress=127.0.0.1\nclientPort={self.plain}\n"
            f"secureClientPortAddress=127.0.0.1\nsecureClientPort={self.secure}\n"
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n"
            f"ssl.keyStore.location={own}\nssl.keyStore.type=PEM\n"
            f"ssl.trustStore.location={self.authority.path}\nssl.trustStore.type=PEM\nssl.clientAuth=need\n"
        )
        command = old_java(folder, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config))
        with (folder / "zookeeper.log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def identity(self, subject: str) -> Path:
        """A PEM file with the key and the certificate."""
        issued: Issued = self.authority.issue(subject)
        path = self.folder / f"{subject.partition('=')[2]}-both.pem"
        path.write_text(issued.key_text + issued.chain_text)
        return path

    def session(self, **more: str) -> ZooKeeper:
        """As a controller with these settings begins it."""
        trust = str(self.authority.path)
        texts = {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.location": trust}
        return begun(self.secure, texts, more)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    made = TlsServer(tmp_path_factory.mktemp("tls") / "zookeeper")
    try:

        def is_ready() -> bool:
            assert made.process.poll() is None, (made.folder / "zookeeper.log").read_text()
            try:
                with plain_client(made.plain):
                    return True
            except KazooTimeoutError:
                return False

        wait_for("ZooKeeper answers", is_ready)
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def test_a_session_over_tls_reads_and_writes(server: TlsServer) -> None:
    own = str(server.identity("CN=controller"))
    session = server.session(zookeeper_ssl_keystore_location=own)
    session.commit([Create("/open", b"a"), SetData("/open", b"b")])
    (znode,) = session.get(["/open"])
    assert znode is not None
    assert (znode.data, znode.version) == (b"b", 1)
    session.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_without_a_certificate_that_zookeeper_trusts_there_is_no_session(server: TlsServer) -> None:
    with pytest.raises(NoAnswerError):
        server.session(zookeeper_connection_timeout_ms="5000")
    other = Authority(server.folder / "other").issue("CN=stranger")
    path = server.folder / "stranger.pem"
    path.write_text(other.key_text + other.chain_text)
    with pytest.raises(NoAnswerError):
        server.session(zookeeper_ssl_keystore_location=str(path), zookeeper_connection_timeout_ms="5000")
    gc.collect()  # kazoo leaves the sockets of refused handshakes open


def test_znodes_are_made_for_their_maker_and_secrets_are_hidden(server: TlsServer) -> None:
    own = str(server.identity("CN=controller"))
    session = server.session(zookeeper_ssl_keystore_location=own, zookeeper_set_acl="true")
    session.commit([Create("/config"), Create("/config/topics", b"t"), Create("/config/users", b"secret")])
    with plain_client(server.plain) as client:
        assert client.get("/config/topics")[0] == b"t"
        with pytest.raises(NoAuthError):
            client.set("/config/topics", b"other")
        with pytest.raises(NoAuthError):
            client.get("/config/users")
        acls, _ = client.get_acls("/config/topics")
        assert {(acl.id.scheme, acl.id.id, acl.perms) for acl in acls} == {
            ("x509", "CN=controller", 31),
            ("world", "anyone", 1),
        }
    session.commit([SetData("/config/users", b"changed")])
    session.close()


def test_acls_need_a_certificate_of_the_controller(server: TlsServer) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.ssl\.keystore\.location"):
        server.session(zookeeper_set_acl="true")
