"""Sessions with a ZooKeeper server as a controller's configuration says, and clients without any of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kazoo.client import KazooClient

from kraft_node.base.config import NodeConfig
from kraft_node.base.config.zookeeper import zookeeper_settings
from kraft_node.migration.zookeeper import ZooKeeper
from kraft_node.runtime.zookeeper import kazoo_sessions

CONTROLLER = (
    "process.roles=controller\nnode.id=1\nlisteners=C://:1\ncontroller.listener.names=C\nlog.dirs=/\n"
    "listener.security.protocol.map=C:PLAINTEXT\ncontroller.quorum.voters=1@localhost:1\n"
    "zookeeper.metadata.migration.enable=true\nzookeeper.session.timeout.ms=30000\n"
    "zookeeper.connection.timeout.ms=90000\n"
)


def begun(port: int, texts: Mapping[str, str], more: Mapping[str, str]) -> ZooKeeper:
    """A session with the server at `port`. Keys in `more` have underscores for dots, and replace those in `texts`."""
    given = {**texts, **{name.replace("_", "."): value for name, value in more.items()}}
    overrides = [f"zookeeper.connect=localhost:{port}", *(f"{key}={value}" for key, value in given.items())]
    settings = zookeeper_settings(NodeConfig.parse(CONTROLLER, overrides))
    assert settings is not None
    return kazoo_sessions(settings)()


@contextmanager
def plain_client(port: int) -> Iterator[KazooClient]:
    """A client without TLS and login."""
    client = KazooClient(f"127.0.0.1:{port}")
    try:
        client.start(timeout=60)
        yield client
    finally:
        client.stop()
        client.close()
