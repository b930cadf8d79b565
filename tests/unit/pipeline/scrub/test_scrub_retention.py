"""Retention deletes segments while a scrub runs: what one replica has no more is not missing there."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from kraft_pipeline.scrub import job, wire
from kraft_pipeline.scrub.layout import Replica, replicas
from kraft_pipeline.scrub.scanner import FIELDS
from kraft_protocol.client.cluster import Cluster, Settings
from kraft_protocol.client.errors import OFFSET_OUT_OF_RANGE, BrokerError
from kraft_protocol.client.requests import PartitionInfo, TopicInfo
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as w
from tests.unit.pipeline.scrub.scrubbed import batches, write_replica

END = 12


def segment_rows(found: list[Replica]) -> list[dict[str, Any]]:
    """The rows of `job.segments`, as tasks see them."""
    others = [{"broker": r.broker, "directory": r.directory, "start": r.start, "high": r.high_watermark} for r in found]
    return [
        {
            "topic": r.topic,
            "partition": r.partition,
            "broker": r.broker,
            "directory": r.directory,
            "segment": s.name,
            "base": s.base_offset,
            "size": s.size,
            "next_base": s.next_base,
            "high": r.high_watermark,
            "compacted": False,
            "flushed": r.flushed,
            "replicas": others,
            "epochs": [{"epoch": epoch, "start": start} for epoch, start in r.epochs],
        }
        for r in found
        for s in r.segments
    ]


def findings(parts: list[pa.RecordBatch]) -> list[tuple[int, str, int]]:
    """Broker, kind and offset of each finding in the stretch of these digests."""
    rows = job._compared(pa.Table.from_batches(parts)).to_pylist()
    return [(row["broker"], row["kind"], row["base_offset"]) for row in rows]


@pytest.mark.parametrize("count", [1, 2])
def test_a_segment_deleted_after_the_plan_is_not_missing(tmp_path: Path, count: int) -> None:
    """Each of its batches was reported as missing, because the other replica had been read before."""
    made = batches(6)
    for broker in (1, 2):
        write_replica(tmp_path / str(broker), broker, [made[:2], made[2:4], made[4:]], high_watermark=END)
    rows = segment_rows(replicas([tmp_path / "1", tmp_path / "2"]))
    parts = [part for row in rows[:3] for part in job.pieces(row, *job._scan_segment(row))]
    for segment in sorted((tmp_path / "2" / "orders-0").glob("*.log"))[:count]:
        segment.unlink()
    parts += [part for row in rows[3:] for part in job.pieces(row, *job._scan_segment(row))]
    assert findings(parts) == []


def test_a_batch_that_is_missing_above_a_deleted_segment_is_found(tmp_path: Path) -> None:
    made = batches(6)
    write_replica(tmp_path / "1", 1, [made[:2], made[2:4], made[4:]], high_watermark=END)
    write_replica(tmp_path / "2", 2, [made[:2], made[2:3], made[4:]], high_watermark=END)
    rows = segment_rows(replicas([tmp_path / "1", tmp_path / "2"]))
    (tmp_path / "2" / "orders-0" / f"{0:020}.log").unlink()
    parts = [part for row in rows for part in job.pieces(row, *job._scan_segment(row))]
    assert {(broker, base) for broker, _, base in findings(parts)} == {(2, 6)}


def _parts_without(tmp_path: Path, gone: Path) -> list[pa.RecordBatch]:
    """What tasks find if `gone` disappears from the second of two equal replicas after the plan."""
    made = batches(6)
    for broker in (1, 2):
        write_replica(tmp_path / str(broker), broker, [made[:2], made[2:4], made[4:]], high_watermark=END)
    rows = segment_rows(replicas([tmp_path / "1", tmp_path / "2"]))
    gone.rename(tmp_path / "elsewhere")
    return [part for row in rows for part in job.pieces(row, *job._scan_segment(row))]


def test_a_segment_that_disappears_above_others_is_missing(tmp_path: Path) -> None:
    """It was taken for deleted by retention, and with it everything below."""
    parts = _parts_without(tmp_path, tmp_path / "2" / "orders-0" / f"{4:020}.log")
    assert {(broker, base) for broker, _, base in findings(parts)} == {(2, 4), (2, 6)}


def test_a_directory_that_disappears_is_not_retention(tmp_path: Path) -> None:
    parts = _parts_without(tmp_path, tmp_path / "2")
    assert {(broker, kind) for broker, kind, _ in findings(parts)} >= {(2, "unreadable")}


def test_a_deleted_topic_is_not_damage(tmp_path: Path) -> None:
    assert findings(_parts_without(tmp_path, tmp_path / "2" / "orders-0")) == []


@pytest.mark.parametrize("others", [0, 2])
def test_a_replica_that_has_lost_all_segments_is_missing(tmp_path: Path, others: int) -> None:
    """It was left out of the scrub, which found no damage."""
    made = batches(6)
    for broker in range(1, others + 2):
        write_replica(tmp_path / str(broker), broker, [made], high_watermark=END)
    (tmp_path / "1" / "orders-0" / f"{0:020}.log").unlink()
    rows = segment_rows(replicas([tmp_path / str(broker) for broker in range(1, others + 2)]))
    parts = [part for row in rows for part in job.pieces(row, *job._scan_segment(row))]
    assert findings(parts) == [(1, "missing", 0)]


def test_a_lost_log_of_many_offsets_is_damaged_in_all_stretches() -> None:
    row = {"topic": "t", "partition": 0, "broker": 1, "directory": "/d", "segment": "", "base": job.STRETCH - 1}
    digests, found, _, _ = job._scan_segment({**row, "high": 2 * job.STRETCH + 5})
    assert len(found) == 1
    assert digests[:, :2].tolist() == [
        [job.STRETCH - 1, job.STRETCH - 1],
        [job.STRETCH, 2 * job.STRETCH - 1],
        [2 * job.STRETCH, 2 * job.STRETCH + 4],
    ]


def test_a_replica_without_records_is_counted_and_sound(tmp_path: Path) -> None:
    """The first record makes the segment. One over the network counted them, one of directories did not."""
    for broker in (1, 2):
        write_replica(tmp_path / str(broker), broker, [], high_watermark=0)
    found = replicas([tmp_path / "1", tmp_path / "2"])
    assert [(replica.broker, replica.segments) for replica in found] == [(1, []), (2, [])]
    assert segment_rows(found) == []


def test_a_deleted_segment_of_many_offsets_is_known_in_all_stretches() -> None:
    row = {"topic": "t", "partition": 0, "broker": 1, "directory": "/d", "segment": "s", "compacted": False}
    row |= {"base": job.STRETCH - 1, "replicas": []}
    digests = np.empty((0, len(FIELDS)), np.int64)
    found = [part.to_pylist()[0] for part in job.pieces(row, digests, [], 0, 2 * job.STRETCH + 1)]
    assert [(one["stretch"], one["gone"]) for one in found] == [(n, 2 * job.STRETCH + 1) for n in range(3)]


@pytest.mark.parametrize("start", [4, END])
def test_offsets_deleted_before_they_are_fetched_are_not_damage(monkeypatch: pytest.MonkeyPatch, start: int) -> None:
    """The replica was reported as unreadable, and its batches as missing."""
    made = batches(6)
    others = [{"broker": broker, "directory": f"b{broker}", "start": 0, "high": END} for broker in (1, 2)]
    row = {"topic": "orders", "partition": 0, "segment": "", "base": 0, "high": END, "compacted": False}
    row |= {"replicas": others}
    cluster: Any = SimpleNamespace(offsets=lambda wanted: dict.fromkeys(wanted, 0))

    def fetched(_: Any, row: dict[str, Any], at: int) -> Any:
        if row["broker"] == 2 and at < start:
            raise BrokerError(OFFSET_OUT_OF_RANGE, "orders-0")
        return SimpleNamespace(records=b"".join(made[at // 2 :]), high_watermark=END)

    monkeypatch.setattr(wire, "_fetch", fetched)
    monkeypatch.setattr(wire, "_start", lambda *_: start, raising=False)
    parts = []
    for broker in (1, 2):
        one = {**row, "broker": broker, "directory": f"b{broker}"}
        parts += job.pieces(one, *wire._scan_replica(cluster, one))
    assert findings(parts) == []


def test_an_offset_out_of_range_that_the_partition_has_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"topic": "orders", "partition": 0, "broker": 1, "directory": "b1", "segment": "", "base": 0, "high": END}
    row |= {"compacted": False, "replicas": []}
    cluster: Any = SimpleNamespace(topics=lambda _: {})
    monkeypatch.setattr(wire, "_start", lambda *_: 0)

    def refused(*_: Any) -> Any:
        raise BrokerError(OFFSET_OUT_OF_RANGE, "orders-0 of broker 1")

    monkeypatch.setattr(wire, "_fetch", refused)
    assert [found.kind for found in wire._scan_replica(cluster, row)[1]] == ["unreadable"]


class Answers:
    """A cluster in which each broker answers from its own log; `topic_ids` has the ids of the topic on all brokers."""

    def __init__(self, starts: dict[int, int], known: set[bytes], in_sync: tuple[int, ...] = (1, 2)) -> None:
        self._starts, self._known, self._broker = starts, known, 0
        self._in_sync, self.ends = in_sync, dict[int, int]()
        self.highs = dict[int, list[int]]()
        """By broker: the high watermarks of its next responses, if they are below the end."""
        self.settings = Settings("localhost:1", retry_s=0.01)

    def topics(self, _: Any = None) -> dict[str, TopicInfo]:
        partition = PartitionInfo(0, 1, 0, (1, 2), self._in_sync)
        return {"orders": TopicInfo(0, "orders", b"i" * 16, False, {0: partition})}

    def topic_ids(self, names: list[str]) -> dict[str, set[bytes]]:
        return dict.fromkeys(names, self._known)

    def connection(self, broker: int) -> Answers:
        self._broker = broker
        return self

    def dropping(self, connection: Answers) -> Any:
        return nullcontext(connection)

    def retried(self, *given: Any) -> Any:
        return Cluster.retried(cast("Cluster", self), *given)

    def request(self, body: Any) -> Any:
        """The response of a replica, or UNKNOWN_TOPIC_ID without a log."""
        start = self._starts.get(self._broker)
        if isinstance(body, w.ListOffsetsRequest):
            assert body.replica_id == -2, "a follower refuses other requests"
            row = w.ListOffsetsResponse.ListOffsetsPartitionResponse(0, offset=start or 0)
            return w.ListOffsetsResponse(topics=[w.ListOffsetsResponse.ListOffsetsTopicResponse("orders", [row])])
        at = body.topics[0].partitions[0].fetch_offset
        highs = self.highs.get(self._broker)
        high = highs.pop(0) if highs else END
        part = w.FetchResponse.PartitionData(0, high_watermark=high)
        if start is None:
            part.error_code = 100
        elif at < start:
            part.error_code = OFFSET_OUT_OF_RANGE
        else:
            end = min(high, self.ends.get(self._broker, END))
            part.records = b"".join(batches(6)[at // 2 : end // 2])
        return w.FetchResponse(responses=[w.FetchResponse.FetchableTopicResponse(partitions=[part])])


def wire_findings(cluster: Answers) -> list[tuple[int, str, int]]:
    return findings(wire_parts(cluster))


def wire_parts(cluster: Answers) -> list[pa.RecordBatch]:
    others = [{"broker": broker, "directory": f"b{broker}", "start": 0, "high": END} for broker in (1, 2)]
    row = {"topic": "orders", "partition": 0, "segment": "", "base": 0, "high": END, "compacted": False}
    row |= {"replicas": others, "topic_id": b"i" * 16}
    parts = []
    for broker in (1, 2):
        one = {**row, "broker": broker, "directory": f"b{broker}"}
        parts += job.pieces(one, *wire._scan_replica(cast("Cluster", cluster), one))
    return parts


def test_a_follower_that_retention_trims_before_its_leader_is_not_damaged() -> None:
    """The leader was asked for the first offset of the follower's log, so the follower counted as unreadable."""
    assert wire_findings(Answers({1: 0, 2: 4}, {b"i" * 16})) == []


@pytest.mark.parametrize("starts", [{}, {1: 0}])
def test_a_topic_that_all_brokers_lack_is_not_damaged(starts: dict[int, int]) -> None:
    """Its replicas were reported as unreadable."""
    assert wire_findings(Answers(starts, {b"another topic id"})) == []


@pytest.mark.parametrize(("in_sync", "kinds"), [((1,), set()), ((1, 2), {"cut", "missing"})])
def test_a_follower_outside_of_the_isr_may_lack_records(in_sync: tuple[int, ...], kinds: set[str]) -> None:
    cluster = Answers({1: 0, 2: 0}, {b"i" * 16}, in_sync)
    cluster.ends = {2: 4}
    parts = wire_parts(cluster)
    assert {kind for _, kind, _ in findings(parts)} == kinds
    assert behind(parts) == ({(2, 4)} if in_sync == (1,) else set()), "a scrub did not tell of it"


def test_a_follower_that_does_not_know_the_high_watermark_yet_is_not_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had all records, and learns the high watermark with its next fetch. They were reported as cut and missing."""
    monkeypatch.setattr(wire, "LOOK_S", 0.0)
    cluster = Answers({1: 0, 2: 0}, {b"i" * 16})
    cluster.highs = {2: [4, 4, 8, 8]}
    assert wire_findings(cluster) == []


def test_a_follower_that_never_learns_the_high_watermark_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "LAG_S", 0.0)
    cluster = Answers({1: 0, 2: 0}, {b"i" * 16})
    cluster.highs = {2: [4] * 9}
    assert {kind for _, kind, _ in wire_findings(cluster)} == {"cut", "missing"}


def behind(parts: list[pa.RecordBatch]) -> set[tuple[int, int]]:
    """The replicas that a report lists as behind, and their first missing offsets."""
    rows = [row for part in parts for row in part.to_pylist()]
    return {(row["broker"], row["behind"]) for row in rows if row["behind"] != job.NOT_BEHIND}


def test_a_replica_that_is_new_or_moves_away_is_not_unreadable() -> None:
    parts = wire_parts(Answers({1: 0}, {b"i" * 16}, (1,)))
    assert findings(parts) == []
    assert behind(parts) == {(2, 0)}


@pytest.mark.parametrize(
    "error", [BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "orders-0"), OSError("connection refused")]
)
def test_a_replica_outside_of_the_isr_that_cannot_be_read_is_not_taken_for_sound(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A damaged replica leaves the ISR, and so does one whose broker is down; both were passed over."""
    fetch = wire._fetch

    def fetched(cluster: Any, row: dict[str, Any], *more: Any) -> Any:
        if row["broker"] == 2:
            raise error
        return fetch(cluster, row, *more)

    monkeypatch.setattr(wire, "_fetch", fetched)
    assert "unreadable" in {kind for _, kind, _ in wire_findings(Answers({1: 0, 2: 0}, {b"i" * 16}, (1,)))}


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_topic_that_is_deleted_while_a_scrub_is_planned_is_left_out(
    monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    """The scrub ended with code 2."""
    partition = PartitionInfo(0, 1, 0, (1,), (1,))
    there = {name: TopicInfo(0, name, name.encode() * 16, False, {0: partition}) for name in "ab"}

    def config(names: list[str], _: str) -> dict[str, str]:
        if "b" in names:
            if is_deleted:
                del there["b"]
            raise BrokerError(3, "cleanup.policy of topic b")
        return dict.fromkeys(names, "delete")

    cluster = SimpleNamespace(
        topics=lambda: dict(there),
        config=config,
        topic_ids=lambda names: {name: {there[name].id} if name in there else set() for name in names},
        offsets=lambda wanted: dict.fromkeys(wanted, 0),
        address=lambda node: f"b{node}",
    )
    monkeypatch.setattr(wire, "Cluster", lambda _: nullcontext(cluster))
    if is_deleted:
        assert [row[0] for row in wire.plan(Settings("localhost:1"), ["*"])] == ["a"]
    else:
        with pytest.raises(BrokerError, match=r"cleanup\.policy of topic b"):
            wire.plan(Settings("localhost:1"), ["*"])


def test_a_topic_that_one_broker_still_has_is_unreadable() -> None:
    assert (2, "unreadable", 0) in wire_findings(Answers({1: 0}, {b"i" * 16}))
