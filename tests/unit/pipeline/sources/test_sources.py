"""Options like those of Spark's `kafka` source, ranges split into tasks, and micro-batches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kraft_pipeline.sinks.options import check_kinds, parse_sink
from kraft_pipeline.sources import planning
from kraft_pipeline.sources.lag import behind_latest
from kraft_pipeline.sources.options import columns_of, parse
from kraft_pipeline.sources.positions import Position, continued, followed, refuse
from kraft_protocol.client.errors import BrokerError, DataLossError
from kraft_protocol.client.fetch import Range
from kraft_protocol.client.requests import EARLIEST, LATEST

BASE = {"kafka.bootstrap.servers": "a:1,b:2", "subscribe": "t"}


def parsed(streaming: bool = False, **options: str) -> Any:
    return parse({**BASE, **options}, streaming=streaming)


def test_defaults_equal_those_of_the_kafka_source() -> None:
    batch, stream = parsed(), parsed(streaming=True)
    assert (batch.starting.everywhere, batch.ending.everywhere) == (EARLIEST, LATEST)
    assert stream.starting.everywhere == LATEST
    assert batch.topics == ("t",)
    assert batch.fail_on_data_loss
    assert not batch.committed
    assert batch.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert batch.settings.servers() == [("a", 1), ("b", 2)]


def test_options_have_no_case_and_times_go_before_offsets() -> None:
    options = parsed(STARTINGOFFSETS='{"t": {"0": 5, "1": -2}}', FailOnDataLoss="FALSE")
    assert options.starting.offsets == {("t", 0): 5, ("t", 1): EARLIEST}
    assert not options.fail_on_data_loss
    assert parsed(startingOffsets="earliest", startingTimestamp="77").starting.timestamp_ms == 77
    by_partition = parsed(startingOffsetsByTimestamp='{"t": {"0": 9}}', startingOffsets="earliest").starting
    assert by_partition.timestamps_ms == {("t", 0): 9}
    assert parsed(streaming=True, maxTriggerDelay="2m").max_trigger_delay_s == 120
    assert columns_of({"includeHeaders": "true"})[-1] == "headers"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": ""}, "exactly one of the options subscribe, subscribePattern, assign must be given, not 0"),
        ({"assign": '{"t": [0]}'}, "exactly one of the options .* not 2"),
        ({"subscribe": "", "assign": "t"}, r"option assign: 't' is not of the form"),
        ({"subscribe": "", "subscribePattern": "("}, "option subscribePattern: '\\(' is not a regular expression"),
        ({"kafka.bootstrap.servers": "a"}, "kafka.bootstrap.servers: 'a' is not host:port"),
        ({"kafka.bootstrap.servers": "a:65536"}, "kafka.bootstrap.servers: 'a:65536' is not host:port"),
        ({"kafka.bootstrap.servers": ""}, "option kafka.bootstrap.servers is missing"),
        ({"kafka.ssl.keystore.location": "x"}, "ssl.keystore.location has no effect with security.protocol=PLAINTEXT"),
        ({"kafka.security.protocol": "TLS"}, "security.protocol: 'TLS' is not one of PLAINTEXT, SSL"),
        ({"kafka.sasl.mechansm": "PLAIN"}, "kafka.sasl.mechansm: unknown option; did you mean kafka.sasl.mechanism"),
        ({"kafka.security.protocol": "SASL_SSL"}, "sasl.jaas.config is missing"),
        ({"startingOffsets": "latest"}, "option startingOffsets: a batch from latest has no records"),
        ({"endingOffsets": "earliest"}, "option endingOffsets: a range that ends at earliest has no records"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "option startingOffsets: -3 of t-0 is less than -2"),
        ({"startingOffsets": "5"}, "option startingOffsets: '5' is not of the form"),
        ({"columns": "key,vale"}, "option columns: no column 'vale'"),
        ({"minPartitions": "0"}, "option minPartitions: '0' is not an integer of at least 1"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss: 'maybe' is not true or false"),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay: 'soon' is not a duration"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "option startingOffsets: a batch from latest has no records"),
        (
            {"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": 4}}'},
            "option startingOffsets: 5 of t-0 is more than endingOffsets, 4",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": 5}}', "endingOffsetsByTimestamp": '{"t": {"0": 4}}'},
            "option startingOffsetsByTimestamp: 5 of t-0 is more than endingOffsetsByTimestamp, 4",
        ),
        (
            {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            "option minOffsetsPerTrigger: 5 is more than maxOffsetsPerTrigger, 4",
        ),
        ({"kafka.auto.offset.reset": "latest"}, "option kafka.auto.offset.reset: is not for readers of Spark"),
        ({"kafka.isolation.level": "x"}, "option kafka.isolation.level: 'x' is neither"),
    ],
)
def test_wrong_options_of_a_source_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parsed(**options)


@pytest.mark.parametrize(
    ("options", "columns", "message"),
    [
        ({}, ["value"], "no topic is given: set the option topic or add a column topic"),
        ({"topic": "t"}, ["key"], "column value is missing; the columns are key"),
        (
            {"topic": "t", "kafka.compression.type": "rar"},
            ["value"],
            "kafka.compression.type: 'rar' is not one of",
        ),
        ({"topic": "t", "kafka.acks": "1"}, ["value"], "option kafka.acks: an idempotent producer has only all"),
        ({"topic": "t", "kafka.batch.size": "0"}, ["value"], "option kafka.batch.size: '0' is not a number between"),
        ({"topic": "t", "kafka.Partitioner.class": "x"}, ["value"], "option kafka.partitioner.class: is not for this"),
    ],
)
def test_wrong_options_of_a_sink_are_refused(options: dict[str, str], columns: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_sink({"kafka.bootstrap.servers": "a:1", **options}, columns)


def test_a_sinks_columns_are_of_kafkas_types() -> None:
    kinds = {"key": "string", "value": "binary", "topic": "string", "partition": "int", "colour": "int"}
    check_kinds({**kinds, "headers": "array<struct<key:string,value:binary>>"})
    for name, kind, message in [
        ("value", "bigint", "column value is bigint: it must be string or binary"),
        ("topic", "int", "column topic is int: it must be string"),
        ("headers", "string", "column headers is string: it must be array<struct<key:string,value:binary>>"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_kinds({**kinds, name: kind})


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ValueError, match="option endingOffsets: a stream has no end"):
        parsed(streaming=True, endingOffsets="latest")


def ranges(*sizes: int) -> list[Range]:
    return [Range("t", bytes(16), p, 100, 100 + size) for p, size in enumerate(sizes)]


def test_ranges_are_cut_by_their_size() -> None:
    assert planning.split(ranges(10, 0, 5), min_partitions=1) == [ranges(10)[0], ranges(0, 0, 5)[2]]
    pieces = planning.split(ranges(90, 10), min_partitions=10)
    assert [p.partition for p in pieces] == [0] * 9 + [1]
    assert [p.end - p.start for p in pieces] == [10] * 10
    assert [(p.start, p.end) for p in planning.split(ranges(10), min_partitions=1, max_records=4)] == [
        (100, 103),
        (103, 106),
        (106, 110),
    ]
    assert len(planning.split(ranges(2), min_partitions=50)) == 2


def test_a_micro_batch_takes_from_each_partition_its_share() -> None:
    start = {("t", 0): 0, ("t", 1): 0, ("t", 2): 7}
    end = {("t", 0): 900, ("t", 1): 99, ("t", 2): 8}
    assert planning.limited(start, end, 100) == {("t", 0): 90, ("t", 1): 9, ("t", 2): 8}
    assert planning.limited(start, end, 1000) == end
    assert planning.limited(start, {("t", 0): 0}, 10) == {("t", 0): 0}


def test_offsets_are_written_as_in_the_kafka_source() -> None:
    offsets = {("b", 1): 5, ("a", 10): 1, ("a", 2): 3}
    assert Position(offsets).to_json() == {"a": {"2": 3, "10": 1}, "b": {"1": 5}}
    assert Position.from_json(Position(offsets).to_json()) == Position(offsets)
    known = Position(offsets, "cluster", {"a": "0a", "b": "0b"})
    assert known.to_json()["@ids"] == {"cluster": "cluster", "topics": {"a": "0a", "b": "0b"}}
    assert Position.from_json(json.dumps(known.to_json())) == known
    for strange in ("[1]", '{"a": 5}', '{"a": {"x": 1}}', '{"@ids": {}}', "no"):
        with pytest.raises(ValueError, match="are not offsets"):
            Position.from_json(strange)


def test_a_stream_continues_at_its_offsets() -> None:
    then = Position({("a", 0): 5, ("a", 1): 7, ("b", 0): 9}, "c1", {"a": "0a", "b": "0b"})
    now = Position({("a", 0): 50, ("a", 1): 70, ("a", 2): 1, ("b", 0): 90}, "c1", {"a": "0a", "b": "0b"})
    assert continued(then, now) == (then.offsets, [("a", 2)], [])
    again = Position(now.offsets, "c1", {"a": "0a", "b": "ff"})
    good, new, lost = continued(then, again)
    assert (good, new) == ({("a", 0): 5, ("a", 1): 7}, [("a", 2), ("b", 0)])
    with pytest.raises(DataLossError, match=r"b-0: from offset 9 on .* the topic has been deleted and made again"):
        refuse(lost)
    other = Position(now.offsets, "c2", {"a": "0a", "b": "0b"})
    good, new, lost = continued(then, other)
    assert (good, new, len(lost)) == ({}, sorted(now.offsets), 3)
    with pytest.raises(DataLossError, match="the offsets are of cluster c1, this is cluster c2"):
        refuse(lost)
    less = Position({("a", 0): 50, ("a", 1): 70}, "c1", {"a": "0a"})
    good, new, lost = continued(then, less)
    assert (good, new) == ({("a", 0): 5, ("a", 1): 7}, [])
    with pytest.raises(DataLossError, match=r"b-0: .* the partition is gone"):
        refuse(lost)
    assert continued(Position(then.offsets), again).good == then.offsets


class Logs:
    """Leaders' answers about the ends of epochs and the starts of logs."""

    def __init__(self, parted: dict[tuple[str, int], int], starts: dict[tuple[str, int], int]) -> None:
        self._parted, self._starts = parted, starts
        self.asked: list[dict[tuple[str, int], tuple[int, int]]] = []

    def find_truncations(self, read: dict[tuple[str, int], tuple[int, int]]) -> dict[tuple[str, int], int]:
        self.asked.append(read)
        return {key: cut for key, cut in self._parted.items() if key in read}

    def offsets(self, wanted: Any) -> dict[tuple[str, int], int]:
        return {key: self._starts.get(key, 0) for key in wanted}


def test_truncated_logs_are_read_from_the_truncation() -> None:
    """Only leaders of other epochs are asked. A position without epoch comes from an earlier version."""
    a, b, c, d = (("t", n) for n in range(4))
    then = Position({a: 100, b: 100, c: 100, d: 100}, "c", {"t": "00"}, epochs={a: 1, b: 1, d: 4})
    now = Position({a: 120, b: 120, c: 80, d: 120}, "c", {"t": "00"}, epochs={a: 2, b: 1, c: 5, d: 4})
    logs: Any = Logs({a: 30, b: 40}, {d: 110})
    good, new, lost = followed(logs, then, now)
    assert logs.asked == [{a: (100, 1)}]
    assert (good, new) == ({a: 30, b: 100, c: 80, d: 100}, [])
    assert [(loss.partition, loss.first, loss.end) for loss in lost] == [(0, 30, 100), (2, 80, 100)]
    good, _, lost = followed(logs, then, now, bottom=True)
    assert good[d] == 110
    assert str(lost[-1]).endswith("lost: offset 100 is gone, the log has 110 to 120 now")
    stale = Position({a: 20}, "c", {"t": "00"}, epochs={a: 0})
    with pytest.raises(BrokerError, match="t-0: its leader of epoch 0 has been replaced"):
        followed(logs, Position({a: 100}, "c", {"t": "00"}, epochs={a: 1}), stale)
    assert Position.from_json(then.to_json()) == then


def test_the_lag_of_a_query_is_in_its_progress() -> None:
    """The metrics of Spark's `kafka` source have it; PySpark's sources cannot add metrics to a progress."""
    end, latest = {"t": {"0": 5, "1": 9}}, {"t": {"0": 15, "1": 9, "2": 5}, "@ids": {"cluster": "c", "topics": {}}}
    kraft = {"endOffset": end, "latestOffset": latest}
    expected = {"minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 10, "avgOffsetsBehindLatest": 5.0}
    assert behind_latest({"sources": [kraft]}) == [expected]
    texts = {"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}
    assert behind_latest(json.dumps({"sources": [texts, {"endOffset": "7"}, {"endOffset": None}]})) == [expected]
    assert behind_latest(None) == []
