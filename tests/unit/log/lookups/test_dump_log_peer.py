"""Apache Kafka's own dump-log reads our files: segments, indexes, transactions, producer snapshots."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft_node.log import flushing
from kraft_node.log.config import make_config
from kraft_node.log.log import Log
from kraft_node.log.log_dir import LogDir
from kraft_node.log.recovery.opening import open_log
from kraft_node.log.segments.files import FileCache
from kraft_node.runtime.env import RealEnv
from kraft_protocol.records.batch import build_batch
from kraft_protocol.records.control import build_marker
from tests.peer import require_peer, run_java

NOW = 1_700_000_000_000
RECORDS = 240


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Log]]:
    """A log with every codec, idempotent and transactional producers, several segments."""
    require_peer()
    path = tmp_path_factory.mktemp("logs") / "t-0"
    path.mkdir()
    real = RealEnv()
    log_dir = LogDir(real.env, str(path.parent), FileCache(real.env.disk))
    config = make_config({"internal.segment.bytes": "2500", "index.interval.bytes": "200"})
    log = open_log(log_dir, str(path), "t", 0, config)
    for number in range(RECORDS // 3):
        how: dict[str, int | bool] = {"compression": number % 5}
        if number % 4:
            how |= {"producer_id": number % 4, "producer_epoch": 0, "base_sequence": number // 4 * 3}
        if number % 4 == 3:
            how["transactional"] = True
        pairs = [(b"key-%d" % number, b"value-%d-%d" % (number, i)) for i in range(3)]
        log.append_as_leader(build_batch(pairs, timestamp=NOW + number, **how), number // 30, NOW + number)  # type: ignore[arg-type]
        if number % 8 == 7:
            end = build_marker(
                commit=number % 16 == 15, producer_id=3, producer_epoch=0, coordinator_epoch=2, timestamp=NOW
            )
            log.append_as_leader(end, number // 30, NOW, internal=True)
    log.active.finish()
    log.take_snapshot(log.end_offset)
    flushing.flush_now(log)
    assert len(log.segment_bases) > 3
    yield path, log
    log.close()
    real.close()


def dump(path: Path, pattern: str, *options: str) -> str:
    files = ",".join(str(file) for file in sorted(path.glob(pattern)))
    assert files
    done = run_java("org.apache.kafka.tools.DumpLogSegments", "--files", files, *options)
    return (done.stdout + done.stderr).decode()  # tools print mismatches to the latter


@pytest.mark.peer
def test_kafkas_tool_dumps_our_segments(written: tuple[Path, Log]) -> None:
    path, log = written
    out = dump(path, "*.log", "--deep-iteration", "--print-data-log")
    data = re.findall(r"\| offset: (\d+) .*payload: (value-\d+-\d+)$", out, re.MULTILINE)
    assert len(data) == RECORDS
    assert [value for _, value in data] == [f"value-{n}-{i}" for n in range(RECORDS // 3) for i in range(3)]
    assert len(re.findall(r"endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: 2", out)) == log.end_offset - RECORDS
    assert "isvalid: false" not in out
    assert out.count("isvalid: true") == RECORDS // 3 + log.end_offset - RECORDS
    assert {"none", "gzip", "snappy", "lz4", "zstd"} == set(re.findall(r"compresscodec: (\w+)", out))


@pytest.mark.peer
@pytest.mark.parametrize("pattern", ["*.index", "*.timeindex"])
def test_kafkas_tool_dumps_our_indexes(written: tuple[Path, Log], pattern: str) -> None:
    path, log = written
    sane = dump(path, pattern, "--index-sanity-check")
    assert sane.count("passed sanity check.") == len(log.segment_bases)
    out = dump(path, pattern, "--verify-index-only")
    for complaint in ("ismatch", "ut of order", "Index ", "rror"):
        assert complaint not in out, out
    entries = dump(path, pattern)
    assert len(re.findall(r"offset: \d+", entries)) > 20


@pytest.mark.peer
def test_kafkas_tool_dumps_our_transactions_and_snapshots(written: tuple[Path, Log]) -> None:
    path, log = written
    out = dump(path, "*.txnindex")
    found = re.findall(r"producerId: (\d+) firstOffset: (\d+)", out)
    assert [(int(pid), int(first)) for pid, first in found] == log.aborted_transactions(0, log.end_offset)
    assert found
    last = dump(path, f"{log.end_offset:020d}.snapshot")
    for producer in log.producers.active():
        assert re.search(
            rf"producerId: {producer.producer_id} producerEpoch: 0 coordinatorEpoch: {producer.coordinator_epoch} "
            rf".*currentTxnFirstOffset: \S* lastTimestamp: {producer.last_timestamp_ms} .*"
            rf"lastSequence: {producer.last_sequence} lastOffset: {producer.last_offset} ",
            last,
        ), last
