"""The simulated ZooKeeper and Apache ZooKeeper: the same transactions, the same outcomes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kraft_node.migration.zookeeper import (
    Check,
    Create,
    Delete,
    NoAnswerError,
    Operation,
    SetData,
    TransactionError,
    ZooKeeper,
)
from kraft_node.runtime.zookeeper import KazooSession
from kraft_node.testing.zookeeper import SimZooKeeper
from tests.compat.zookeeper_cluster import ZooKeeperServer

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]
SEEDS = 60
NAMES = ("/m/a", "/m/b", "/m/a/x", "/m/a/y", "/m/b/x", "/m/a/x/deep")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    one = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")).start()
    yield one
    one.stop()


def session_of(server: ZooKeeperServer) -> KazooSession:
    return KazooSession(server.address, session_ms=10_000, connect_ms=30_000)


def outcome(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except TransactionError as e:
        return str(e)


def transaction(rng: random.Random, root: str) -> list[Operation]:
    found: list[Operation] = []
    for _ in range(rng.randint(1, 4)):
        path = root + rng.choice(NAMES)
        version = rng.choice((-1, -1, 0, 1, 2))
        data = bytes([rng.randrange(256)])
        choices: tuple[Operation, ...] = (
            Create(path, data),
            Create(f"{path}/n_", b"s", sequential=True),
            SetData(path, data, version),
            Delete(path, version),
            Check(path, max(version, 0)),
        )
        found.append(rng.choice(choices))
    return found


def everything(session: ZooKeeper, path: str) -> Any:
    (znode,), (names,) = session.get([path]), session.children([path])
    return (path, znode, [everything(session, f"{path}/{name}") for name in names or ()])


def test_transactions_have_the_outcomes_of_apache_zookeeper(server: ZooKeeperServer) -> None:
    real, model = session_of(server), SimZooKeeper().session()
    for seed in range(SEEDS):
        rng = random.Random(seed)
        root = f"/root{seed}"
        for session in (real, model):
            session.commit([Create(root), Create(f"{root}/m")])
        for _ in range(rng.randint(5, 40)):
            operations = transaction(rng, root)
            theirs, ours = (outcome(partial(s.commit, operations)) for s in (real, model))
            assert ours == theirs, (seed, operations)
        assert everything(model, root) == everything(real, root), seed
    real.close()


def test_a_closed_session_gives_no_answer(server: ZooKeeperServer) -> None:
    for session in (session_of(server), SimZooKeeper().session()):
        session.close()
        with pytest.raises(NoAnswerError):
            session.get(["/"])
        with pytest.raises(NoAnswerError):
            session.commit([Create("/never")])


def test_a_server_that_is_down_gives_no_answer(tmp_path: Path) -> None:
    server = ZooKeeperServer(tmp_path / "zookeeper").start()
    session = KazooSession(server.address, session_ms=1_000, connect_ms=30_000)
    assert session.get(["/none"]) == [None]
    server.stop()
    with pytest.raises(NoAnswerError):
        session.children(["/"])
    with pytest.raises(NoAnswerError):
        KazooSession(server.address, session_ms=1_000, connect_ms=500)
    session.close()
