"""AlterReplicaLogDirs with nothing to move, and its refusals; moves are in tests/compat."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraft_protocol.wire.messages import AlterReplicaLogDirsRequest
from tests.golden.broker.pair import Pair, Side

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("broker-parity")]

LONG = "l" * 220
"""A topic's name, but too long for the directory of a copy."""


def asked(path: str | None, topic: str, *partitions: int) -> Callable[[Side], AlterReplicaLogDirsRequest]:
    """A request; if `path` is None, it names the server's own log directory."""

    def request(side: Side) -> AlterReplicaLogDirsRequest:
        made = AlterReplicaLogDirsRequest
        rows = [made.AlterReplicaLogDirTopic(topic, list(partitions))]
        return made([made.AlterReplicaLogDir(path or str(side.target.data), rows)])

    return request


def test_requests_that_move_nothing_get_the_same_answers(pair: Pair) -> None:
    pair.create("moves.t", 2)
    pair.create(LONG, 1)
    pair.same(asked(None, "moves.t", 0, 1), label="where they are")
    pair.same(asked("/nowhere", "moves.t", 0), label="no such directory")
    pair.same(asked(None, "moves.t", 0, 7, -1), label="no such partition")
    pair.same(asked(None, "moves.none", 0), label="no such topic")
    pair.same(asked(None, "", 0), label="no name")
    pair.same(asked(None, LONG, 0), label="a long name")
    pair.same(asked("", "moves.t", 0), label="no path")
    pair.same(asked(None, "moves.t"), label="no partitions")
    pair.same(AlterReplicaLogDirsRequest([]), label="nothing")
