"""The HTTP endpoints of a running KafkaTable."""

from __future__ import annotations

import json
import socket
import struct
import threading
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables.runner import Progress, Runner, open_table
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.status_server import METRICS, TableStatus, serve
from kraft_pipeline.tables.stores.committer import Added
from kraft_pipeline.tables.values import DEAD_SCHEMA
from kraft_protocol.records.batch import build_batch
from tests.feed import Feed
from tests.unit.pipeline.tables.test_table_changes import parsed
from tests.unit.pipeline.tables.test_tables import document


def _spec(path: Path) -> table_spec.TableSpec:
    return table_spec.parse(document(table={"format": "parquet", "path": str(path)}))


def _get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_lag_batches_and_dead_letters_are_served_as_metrics(tmp_path: Path) -> None:
    given = _spec(tmp_path / "t")
    dead = open_table(given, dead_letters=True)
    dead.create(DEAD_SCHEMA, [])
    dead.commit(0, Position({}, "c", {}), [Added("old.parquet", 1, 4)], after=-1)
    shown, runner = TableStatus(given), SimpleNamespace(care_failures=0, care_error=None, behind=None, lags={})
    with serve(shown, 0) as port:
        shown.watch(cast(Runner, runner))
        assert _get(port, "/readyz")[0] == 503
        assert json.loads(_get(port, "/status")[1]) == {
            "name": "orders",
            "rows": 0,
            "deadLetters": 4,
            # Without the file nobody knows the age of the letters.
            "batches": 0,
            "commitSeconds": 0.0,
            "bytes": 0,
            "writtenBytes": 0,
            "maintenanceFailures": 0,
        }
        assert "kraft_table_partition_lag_records" not in _get(port, "/metrics")[1]
        runner.behind, runner.lags = 7, {("orders", 1): 7, ("orders", 0): 0}
        assert _get(port, "/readyz")[0] == 200
        done = Progress(batch=3, rows=10, dead=2, files=1, seconds=0.5, lag=7, size=80, written=40, commit_s=0.25)
        dead.commit(1, Position({}, "c", {}), [Added("new.parquet", 1, 2)], after=0)
        shown.add(done)
        status: dict[str, Any] = json.loads(_get(port, "/status")[1])
        assert status.pop("lastBatchTime").endswith("Z")
        assert status == {
            "name": "orders",
            "rows": 10,
            "deadLetters": 6,
            "batches": 1,
            "commitSeconds": 0.25,
            "bytes": 80,
            "writtenBytes": 40,
            "maintenanceFailures": 0,
            "lag": 7,
            "batch": 3,
            "lastBatchRows": 10,
            "lastBatchSeconds": 0.5,
        }
        lines = _get(port, "/metrics")[1].splitlines()
        assert 'kraft_table_lag_records{table="orders"} 7' in lines
        assert 'kraft_table_partition_lag_records{table="orders",topic="orders",partition="1"} 7' in lines
        assert 'kraft_table_commit_seconds_total{table="orders"} 0.25' in lines
        assert sum(not line.startswith("#") for line in lines) == len(METRICS) + 1
        assert _get(port, "/other")[0] == 404


def test_the_age_of_the_oldest_dead_letter_follows_batches_and_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = parsed({"format": "json", "schema": {"id": "long"}}, path=str(tmp_path / "t"))
    shown = TableStatus(given)
    assert shown.status()["oldestDeadLetterSeconds"] == 0.0
    feed = Feed(given, report=shown.add)

    def ages() -> float:
        line = next(line for line in shown.metrics().splitlines() if line.startswith("kraft_table_oldest_dead_letter"))
        return float(line.rpartition(" ")[2])

    def put(at: int, seconds: int, *values: bytes) -> None:
        records = [(b"k", value) for value in values]
        feed.put(at, at + len(values), build_batch(records, base_offset=at, timestamp=seconds * 1000))

    monkeypatch.setattr("kraft_pipeline.tables.status_server.time.time", lambda: 5000.0)
    put(0, 1000, b'{"id": 1}', b"no json")
    assert (shown.status()["deadLetters"], ages()) == (1, 4000.0)
    put(2, 700, b"no json", b"no json")
    assert (shown.status()["deadLetters"], ages()) == (3, 4300.0)
    assert TableStatus(given).status()["oldestDeadLetterSeconds"] == 4300.0, "also after a restart"
    dead = open_table(given, dead_letters=True)
    dead.join()
    state = dead.state()
    newest = [file.path for file in dead.live() if "b00000001" in file.path]
    dead.commit(state.batch + 1, Position({}, "c", {}), [], after=state.batch, removed=newest)
    shown.look()
    assert ages() == 4300.0, "not yet read again"
    monkeypatch.setattr("kraft_pipeline.tables.status_server.LETTERS_S", 0.0)
    shown.look()
    assert (shown.status()["deadLetters"], ages()) == (1, 4000.0)


def test_a_client_that_closes_early_leaves_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    """Probes of a busy machine time out, and each left thirty lines in the driver's log."""
    asked, closed = threading.Event(), threading.Event()

    class Slow:
        def metrics(self) -> str:
            asked.set()
            assert closed.wait(60)
            return "x" * 1_000_000

    with serve(cast(TableStatus, Slow()), 0) as port:
        with socket.create_connection(("127.0.0.1", port), 60) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert asked.wait(60)
        closed.set()
    assert capfd.readouterr().err == ""
