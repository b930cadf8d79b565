"""kafka-dump-log and kafka-cluster: damage is tested without a peer, the rest line by line with Kafka's tools."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from kraft_node.cli import cluster
from kraft_node.cli.common import ToolError
from kraft_node.cli.dump_log import main as dump
from kraft_protocol.records.batch import NewRecord, build_batch
from tests.compat.targets import Apache, free_ports
from tests.peer import run_java

SEGMENT = "00000000000000000000"


def batch(offset: int, *values: bytes) -> bytes:
    records = [NewRecord(None, value, 1_700_000_000_000 + offset) for value in values]
    return build_batch(records, base_offset=offset, timestamp=1_700_000_000_000 + offset, leader_epoch=0)


def segment(folder: Path, *parts: bytes) -> Path:
    path = folder / f"{SEGMENT}.log"
    path.write_bytes(b"".join(parts))
    return path


def test_records_are_printed_with_their_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment(tmp_path, batch(0, b"a", b"\xff"), batch(2, b"c"))
    assert dump(["--files", str(path), "--print-data-log"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition("payload: ")[2] for line in lines if line.startswith("|")] == ["a", "\ufffd", "c"]
    assert [line.split()[1] for line in lines if line.startswith("baseOffset")] == ["0", "2"]


def test_a_torn_tail_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = batch(0, b"a")
    path = segment(tmp_path, whole, batch(1, b"b")[:-3])
    assert dump(["--files", str(path)]) == 1
    assert f"Found {len(batch(1, b'b')) - 3} invalid bytes at the end of {SEGMENT}.log" in capsys.readouterr().out


def test_a_damaged_batch_is_marked_invalid_and_later_batches_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = bytearray(batch(0, b"abcdef"))
    first[-3] ^= 1
    path = segment(tmp_path, bytes(first), batch(1, b"b"))
    assert dump(["--files", str(path)]) == 1
    out = capsys.readouterr().out
    assert [line.rpartition(" ")[2] for line in out.splitlines() if "isvalid" in line] == ["false", "true"]


def test_indexes_are_checked_against_their_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = batch(0, b"a"), batch(1, b"b")
    segment(tmp_path, first, second)
    index, times = tmp_path / f"{SEGMENT}.index", tmp_path / f"{SEGMENT}.timeindex"
    index.write_bytes(struct.pack(">ii", 1, len(first)) + bytes(16))
    times.write_bytes(struct.pack(">qi", 1_700_000_000_001, 1) + bytes(24))
    both = f"{index},{times}"
    assert dump(["--files", both]) == 0
    assert "offset: 1 position: " in capsys.readouterr().out
    index.write_bytes(struct.pack(">ii", 1, 3))
    times.write_bytes(struct.pack(">qi", 5, 1) + struct.pack(">qi", 4, 7))
    assert dump(["--files", str(index), "--verify-index-only"]) == 1
    assert dump(["--files", str(times), "--verify-index-only"]) == 1
    err = capsys.readouterr().err
    assert "Index offset: 1, log offset: -1" in err
    assert "Index timestamp: 5, log timestamp: 1700000000001" in err
    assert "Indexed offset: 7, found log offset: -1" in err
    index.write_bytes(b"123")
    assert dump(["--files", str(index), "--index-sanity-check"]) == 1
    assert "neither positive nor a multiple of 8" in capsys.readouterr().err


def test_the_bootstrap_snapshot_is_named_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bootstrap.checkpoint"
    path.write_bytes(batch(0, b"a"))
    assert dump(["--files", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [f"Dumping {path}", "KRaft bootstrap snapshot"]


def test_undecodable_files_and_decoders_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("x")
    assert dump(["--files", str(other)]) == 0
    assert f"Ignoring unknown file {other}" in capsys.readouterr().err
    with pytest.raises(ToolError, match=r"segment's first offset"):
        dump(["--files", str(tmp_path / "x.log")])
    with pytest.raises(FileNotFoundError):
        dump(["--files", str(tmp_path / "00000000000000000007.log")])
    path = segment(tmp_path, batch(0, b"a"))
    with pytest.raises(ToolError, match=r"unknown decoder com\.acme\.Foo"):
        dump(["--files", str(path), "--print-data-log", "--value-decoder-class", "com.acme.Foo"])


def test_numbers_can_be_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment(tmp_path, batch(0, struct.pack(">q", 42)))
    dump(["--files", str(path), "--print-data-log", "--value-decoder-class", "org.apache.kafka.tools.api.LongDecoder"])
    assert capsys.readouterr().out.rstrip().endswith("payload: 42")


def test_numbers_are_the_first_bytes_of_longer_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment(tmp_path, batch(0, struct.pack(">qq", 42, 43), b"short"))
    with pytest.raises(ToolError, match="a value of 5 bytes is shorter than the decoder's number"):
        dump(["--files", str(path), "--value-decoder-class", "org.apache.kafka.tools.api.LongDecoder"])
    assert capsys.readouterr().out.rstrip().endswith("payload: 42")


@pytest.mark.parametrize("option", ["--key-decoder-class", "--value-decoder-class"])
def test_a_decoder_alone_prints_records(tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    path = segment(tmp_path, batch(0, b"a"))
    assert dump(["--files", str(path), option, "org.apache.kafka.tools.api.StringDecoder"]) == 0
    assert capsys.readouterr().out.endswith(" headerKeys: [] payload: a\n")


@pytest.mark.parametrize("option", ["--deep-iteration", "--print-data-log"])
def test_records_with_nothing_to_print_are_empty_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    path = segment(tmp_path, build_batch([NewRecord(None, None, 1_700_000_000_000)]))
    assert dump(["--files", str(path), option, "--skip-record-metadata"]) == 0
    assert capsys.readouterr().out.endswith(" isvalid: true\n\n")


def test_an_unreachable_server_is_reported_in_one_line() -> None:
    with pytest.raises(ToolError, match=r"cannot connect to 127\.0\.0\.1"):
        cluster.main(["cluster-id", "-b", f"127.0.0.1:{free_ports(1)[0]}"])
    with pytest.raises(ToolError, match="not have the form host:port"):
        cluster.main(["cluster-id", "-b", "nowhere"])


# Against Kafka


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    """A running Apache Kafka with records of every kind."""
    server = Apache("kafka", tmp_path_factory.mktemp("dump") / "kafka", {"offsets.topic.num.partitions": "1"})
    server.start()
    try:
        for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
            settings = {"bootstrap.servers": server.bootstrap, "compression.type": compression}
            producer = Producer({**settings, "enable.idempotence": True})
            for number in range(40):
                headers = [("h", b"1"), ("empty", None)] if number % 2 else []
                key = b"k%d" % number if number % 3 else None
                producer.produce("t", b"v" * 500, key, 0, headers=headers)
                if number % 10 == 0:
                    producer.flush()
            producer.flush()
            del producer
        consume(server)
        yield server
    finally:
        server.stop()


def consume(server: Apache) -> None:
    """Read all records in a group and commit."""
    settings = {"bootstrap.servers": server.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["t"])
    seen = 0
    for _ in range(600):
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            seen += 1
        if seen == 200:
            break
    assert seen == 200
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.mark.peer
def test_a_running_cluster_is_described_as_by_kafka(kafka: Apache, capsys: pytest.CaptureFixture[str]) -> None:
    controller = f"127.0.0.1:{kafka.controller_port}"
    for arguments in (
        ["cluster-id", "--bootstrap-server", kafka.bootstrap],
        ["cluster-id", "--bootstrap-controller", controller],
        ["list-endpoints", "--bootstrap-server", kafka.bootstrap, "--include-fenced-brokers"],
        ["list-endpoints", "--bootstrap-controller", controller],
    ):
        theirs = run_java("org.apache.kafka.tools.ClusterTool", *arguments).stdout.decode()
        assert cluster.main(arguments) == 0
        assert capsys.readouterr().out == theirs, arguments
    assert cluster.main(["api-versions", "-b", kafka.bootstrap, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["Fetch"] == {"min": 4, "max": 18}
    with pytest.raises(ToolError, match="BROKER_ID_NOT_REGISTERED"):
        cluster.main(["unregister", "-b", kafka.bootstrap, "--id", "7"])
    with pytest.raises(ToolError, match="BROKER_ID_NOT_REGISTERED"):
        cluster.main(["unregister", "-C", controller, "--id", "7"])


@pytest.mark.peer
def test_damaged_indexes_are_reported_as_by_kafka(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = batch(0, b"a"), batch(1, b"b")
    segment(tmp_path, first, second)
    index, times = tmp_path / f"{SEGMENT}.index", tmp_path / f"{SEGMENT}.timeindex"
    sound = struct.pack(">ii", 1, len(first))
    entries = ((1_700_000_000_000, 0), (5, 1), (4, 1), (6, 7))
    times.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in entries))
    for content, arguments in (
        (sound, ["--files", str(times)]),
        (sound, ["--files", str(times), "--verify-index-only"]),
        (struct.pack(">ii", 0, len(first)) + sound, ["--files", str(index)]),
    ):
        index.write_bytes(content)
        theirs = run_java("org.apache.kafka.tools.DumpLogSegments", *arguments)
        assert dump(arguments) == 1
        ours = capsys.readouterr()
        assert ours.out == theirs.stdout.decode(), arguments
        assert sorted(ours.err.splitlines()) == sorted(theirs.stderr.decode().splitlines()), arguments


@pytest.mark.peer
def test_files_are_dumped_line_by_line_as_by_kafka(kafka: Apache, capsys: pytest.CaptureFixture[str]) -> None:
    kafka.stop()
    topic = kafka.data / "t-0"
    snapshots = sorted(topic.glob("*.snapshot"))
    assert snapshots
    log = str(topic / f"{SEGMENT}.log")
    indexes = f"{topic}/{SEGMENT}.index,{topic}/{SEGMENT}.timeindex,{snapshots[-1]}"
    for arguments in (
        ["--files", log],
        ["--files", log, "--deep-iteration"],
        ["--files", log, "--print-data-log"],
        ["--files", log, "--print-data-log", "--skip-record-metadata"],
        ["--files", log, "--max-bytes", "3000"],
        ["--files", log, "--value-decoder-class", "org.apache.kafka.tools.api.LongDecoder"],
        ["--files", indexes],
        ["--files", f"{topic}/{SEGMENT}.index,{topic}/{SEGMENT}.timeindex", "--verify-index-only"],
        ["--files", f"{topic}/{SEGMENT}.index,{topic}/{SEGMENT}.timeindex", "--index-sanity-check"],
        ["--files", f"{kafka.data}/__consumer_offsets-0/{SEGMENT}.log", "--offsets-decoder"],
        ["--files", f"{kafka.data}/__cluster_metadata-0/{SEGMENT}.log", "--cluster-metadata-decoder"],
        ["--files", f"{kafka.data}/bootstrap.checkpoint", "--cluster-metadata-decoder"],
    ):
        theirs = run_java("org.apache.kafka.tools.DumpLogSegments", *arguments).stdout.decode()
        assert dump(arguments) == 0
        ours = capsys.readouterr().out
        assert ours.splitlines() == theirs.splitlines(), arguments
