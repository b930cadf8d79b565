"""Partitions that have no leader, and brokers that are away: what the rest of a cluster can be asked meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.client import BrokerError, ClientError, Cluster, Settings, cluster
from kraft_pipeline.client.messages import LATEST, OffsetAnswer, PartitionInfo, TopicInfo
from kraft_pipeline.sources import offsets
from kraft_pipeline.sources.options import parse
from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables import maintenance, spec
from kraft_pipeline.tables.engine import InlineEngine
from kraft_pipeline.tables.runner import Runner

A, B, C = (("t", n) for n in range(3))


class Told(Cluster):
    """Metadata and answers are given: partition 0 is led by node 1, partition 1 by nobody, partition 2 by node 2."""

    def __init__(self, answers: dict[int, dict[Any, OffsetAnswer] | OSError], error: int = 5) -> None:
        super().__init__(Settings("a:1", retry_s=0.2))
        leaders = {0: PartitionInfo(0, 1, 7), 1: PartitionInfo(error, -1, 7), 2: PartitionInfo(0, 2, 7)}
        self._answers, self.cluster_id = answers, "c"
        self._topics["t"] = TopicInfo(0, "t", bytes(16), False, leaders)

    def topics(self, names: Any = None, *, create: bool = False) -> dict[str, TopicInfo]:
        return self._topics

    def connection(self, node: int) -> Any:
        found = self._answers[node]
        if isinstance(found, OSError):
            raise found
        return found

    @contextmanager
    def dropping(self, connection: Any) -> Iterator[Any]:
        yield _Connection(connection)


class _Connection:
    def __init__(self, answers: Any) -> None:
        self._answers = answers

    def ask(self, api: int, body: Any) -> Any:
        return self._answers


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.m, "read_list_offsets", lambda found: found)


def test_partitions_without_a_leader_stand_still_and_the_others_go_on() -> None:
    """For a while they are waited for; at first, and for a list that must be whole, until the patience is over."""
    told = Told({1: {A: OffsetAnswer(0, 50, 7)}, 2: ConnectionRefusedError("away")})
    options = parse({"kafka.bootstrap.servers": "a:1", "subscribe": "t"}, streaming=True)
    then = Position({A: 10, B: 20, C: 30}, "c", {"t": "00" * 16}, epochs={A: 7, B: 6})
    found = offsets.latest(told, options, then, grace_s=0.1)
    assert (found.offsets, found.epochs) == ({A: 50, B: 20, C: 30}, {A: 7, B: 6})
    new = offsets.latest(told, options, Position({A: 10}), grace_s=0.1)
    assert new.offsets == {A: 50}
    with pytest.raises(ClientError, match=r"tried for 0.2 s"):
        offsets.latest(told, options)


def test_what_no_patience_changes_is_said_at_once() -> None:
    told = Told({1: {A: OffsetAnswer(29, -1)}, 2: {C: OffsetAnswer(0, 5, 7)}})
    with pytest.raises(BrokerError, match=r"offsets of t-0: TOPIC_AUTHORIZATION_FAILED"):
        told.listed(dict.fromkeys((A, B, C), LATEST), grace_s=0.1)


def test_nobody_answers() -> None:
    told = Told({1: OSError("gone"), 2: OSError("gone")})
    with pytest.raises(ClientError, match=r"tried for 0.1 s"):
        told.listed(dict.fromkeys((A, B, C), LATEST), grace_s=0.1)


def test_an_error_in_maintenance_ends_no_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {
        "apiVersion": spec.API_VERSION,
        "kind": spec.KIND,
        "metadata": {"name": "t"},
        "spec": {
            "bootstrapServers": "a:1",
            "topics": {"names": ["t"]},
            "table": {"path": str(tmp_path), "format": "parquet"},
        },
    }

    def fails(*_: Any) -> str:
        raise ValueError("a file that is no Parquet")

    monkeypatch.setattr(maintenance, "care", fails)
    waited: list[str] = []
    Runner(spec.parse(document), InlineEngine(), wait=waited.append)._care()
    assert waited == ["maintenance failed, batches go on: a file that is no Parquet"]
