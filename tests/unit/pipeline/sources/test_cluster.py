"""Partitions without a leader, and brokers that are down: which requests the rest of a cluster can answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kraft_pipeline.sources import offsets
from kraft_pipeline.sources.kraft import KraftStreamReader
from kraft_pipeline.sources.options import parse
from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables import maintenance, status_server
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.runner import Runner
from kraft_pipeline.tables.specs import table_spec
from kraft_protocol.client import cluster
from kraft_protocol.client.cluster import Cluster, Settings
from kraft_protocol.client.errors import BrokerError, ClientError
from kraft_protocol.client.requests import LATEST, OffsetAnswer, PartitionInfo, TopicInfo

A, B, C = (("t", n) for n in range(3))


class GivenCluster(Cluster):
    """A cluster with given metadata and responses.

    Node 1 leads partition 0, node 2 leads partition 2, partition 1 has no leader.
    """

    def __init__(self, answers: dict[int, dict[Any, OffsetAnswer] | OSError], error: int = 5) -> None:
        super().__init__(Settings("a:1", retry_s=0.2))
        leaders = {0: PartitionInfo(0, 1, 7), 1: PartitionInfo(error, -1, 7), 2: PartitionInfo(0, 2, 7)}
        self._answers, self.topology.cluster_id = answers, "c"
        self.topology.topics["t"] = TopicInfo(0, "t", bytes(16), False, leaders)

    def topics(self, names: Any = None, *, create: bool = False) -> dict[str, TopicInfo]:
        return self.topology.topics

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

    def request(self, body: Any) -> Any:
        return self._answers


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.m, "read_list_offsets", lambda found: found)


def test_partitions_without_a_leader_stand_still_and_others_continue() -> None:
    """The reader waits for them for a while; at the start, and for a list that must be complete, until its patience
    ends.
    """
    reported = GivenCluster({1: {A: OffsetAnswer(0, 50, 7)}, 2: ConnectionRefusedError("away")})
    options = parse({"kafka.bootstrap.servers": "a:1", "subscribe": "t"}, streaming=True)
    then = Position({A: 10, B: 20, C: 30}, "c", {"t": "00" * 16}, epochs={A: 7, B: 6})
    found = offsets.latest(reported, options, then, grace_s=0.1)
    assert (found.offsets, found.epochs) == ({A: 50, B: 20, C: 30}, {A: 7, B: 6})
    new = offsets.latest(reported, options, Position({A: 10}), grace_s=0.1)
    assert new.offsets == {A: 50}
    with pytest.raises(ClientError, match=r"tried for 0.2 s"):
        offsets.latest(reported, options)


def test_a_query_continues_and_reports_its_end_without_the_partitions_that_are_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark requests the end for its progress after each plan: that waited for all partitions, and ended the query."""
    monkeypatch.setitem(offsets.latest.__kwdefaults__, "grace_s", 0.1)
    options = parse({"kafka.bootstrap.servers": "a:1", "subscribe": "t"}, streaming=True)
    reader: Any = KraftStreamReader(options, ("value",))
    reader._open = GivenCluster({1: {A: OffsetAnswer(0, 50, 7)}, 2: {C: OffsetAnswer(0, 60, 7)}})
    then = Position({A: 10, B: 20, C: 30}, "c", {"t": "00" * 16})
    end = reader.latestOffset(then.to_json(), ReadAllAvailable())
    assert Position.from_json(end).offsets == {A: 50, B: 20, C: 60}
    assert reader.reportLatestOffset() == end


def test_a_permanent_error_is_raised_at_once() -> None:
    reported = GivenCluster({1: {A: OffsetAnswer(29, -1)}, 2: {C: OffsetAnswer(0, 5, 7)}})
    with pytest.raises(BrokerError, match=r"offsets of t-0: TOPIC_AUTHORIZATION_FAILED"):
        reported.offsets_with_epochs(dict.fromkeys((A, B, C), LATEST), grace_s=0.1)


def test_a_missing_right_to_read_configurations_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrub without DESCRIBE_CONFIGS failed with `TOPIC_AUTHORIZATION_FAILED` alone, though it may read the topic."""
    reported = GivenCluster({})
    monkeypatch.setattr(reported, "any_connection", lambda: {"t": (29, "")})
    monkeypatch.setattr(cluster.m, "read_describe_configs", lambda found: found)
    with pytest.raises(
        BrokerError, match=r"of topic t, which needs DESCRIBE_CONFIGS on the topic: TOPIC_AUTH\w+ \(29\)"
    ):
        reported.config(["t"], "cleanup.policy")


def test_without_any_answer_the_look_up_times_out() -> None:
    reported = GivenCluster({1: OSError("gone"), 2: OSError("gone")})
    with pytest.raises(ClientError, match=r"tried for 0.1 s"):
        reported.offsets_with_epochs(dict.fromkeys((A, B, C), LATEST), grace_s=0.1)


class Listed(Cluster):
    """Two brokers with different metadata; listings come from the first, and each listing changes the metadata."""

    def __init__(self, *listings: dict[str, bytes], other: dict[str, bytes]) -> None:
        super().__init__(Settings("a:1", retry_s=5))
        self.topology.cluster_id, self._listings, self._other = "c", list(listings), other

    def topics(self, names: Any = None, *, create: bool = False) -> dict[str, TopicInfo]:
        self._now = self._listings.pop(0) if len(self._listings) > 1 else self._listings[0]
        self.topology.topics = {name: _topic(name, found) for name, found in self._now.items()}
        return self.topology.topics

    def addresses(self) -> list[tuple[str, int]]:
        return [("a", 1), ("b", 2)]

    def _connect(self, host: str, port: int) -> Any:
        return self._now if host == "a" else self._other

    @contextmanager
    def dropping(self, connection: Any) -> Iterator[Any]:
        yield _Connection(connection)

    def offsets_with_epochs(self, wanted: Any, **_: Any) -> dict[Any, OffsetAnswer]:
        return {key: OffsetAnswer(0, 50, 7) for key in wanted}


def _topic(name: str, found: bytes) -> TopicInfo:
    return TopicInfo(0, name, found, False, {0: PartitionInfo(0, 1, 7)})


OLD, NEW = bytes([1]) * 16, bytes([2]) * 16


@pytest.mark.parametrize(
    ("listings", "other", "expected"),
    [
        ([{"s": OLD}, {"s": OLD}, {"s": OLD, "t": OLD}], {"s": OLD, "t": OLD}, {("s", 0): 50, ("t", 0): 50}),
        ([{"s": OLD, "t": NEW}, {"s": OLD, "t": OLD}], {"s": OLD, "t": OLD}, {("s", 0): 50, ("t", 0): 50}),
        ([{"s": OLD}], {"s": OLD}, {("s", 0): 50}),
    ],
    ids=["missing in one listing", "another incarnation in one listing", "deleted"],
)
def test_a_topic_counts_as_deleted_only_if_no_broker_has_it(
    monkeypatch: pytest.MonkeyPatch, listings: Any, other: Any, expected: Any
) -> None:
    """A broker with stale metadata made a pattern's topic a lost one, or a new one that was read again."""

    def read(found: dict[str, bytes]) -> Any:
        topics = [_topic(name, found[name]) for name in found]
        missing = [TopicInfo(3, name, bytes(16), False, {}) for name in {"s", "t"} - set(found)]
        return cluster.m.MetadataAnswer([], "c", [*topics, *missing])

    monkeypatch.setattr(cluster.m, "read_metadata", read)
    options = parse({"kafka.bootstrap.servers": "a:1", "subscribePattern": "."}, streaming=True)
    then = Position({("s", 0): 10, ("t", 0): 10}, "c", {"s": OLD.hex(), "t": OLD.hex()})
    for grace_s in (0.1, None):
        found = offsets.latest(Listed(*listings, other=other), options, then, grace_s=grace_s)
        assert found.offsets == expected
        assert all(found.topics[name] == OLD.hex() for name, _ in expected)


def test_an_error_in_maintenance_ends_no_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {
        "apiVersion": table_spec.API_VERSION,
        "kind": table_spec.KIND,
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
    parsed = table_spec.parse(document)
    runner, reported = Runner(parsed, InlineEngine(), wait=waited.append), status_server.TableStatus(parsed)
    reported.watch(runner)
    runner._caretaker._pass()
    assert waited == ["maintenance failed, batches continue: a file that is no Parquet"]
    assert reported.status()["maintenanceError"] == "a file that is no Parquet"
    assert 'kraft_table_maintenance_failures_total{table="t"} 1' in reported.metrics()
    monkeypatch.setattr(maintenance, "care", lambda *_: "")
    runner._caretaker._pass()
    assert (reported.status()["maintenanceFailures"], "maintenanceError" in reported.status()) == (1, False)
