"""HTTP endpoints of a running KafkaTable: `/status` for the operator, `/metrics` for Prometheus, `/readyz`.

Responses use the last known values; a request causes no access to the cluster or the table.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pyarrow.parquet as pq

from kraft_pipeline.tables.fleet import Fleet
from kraft_pipeline.tables.runner import Progress, Runner, open_table
from kraft_pipeline.tables.specs.table_spec import TableSpec
from kraft_pipeline.tables.stores.storage import open_storage

REQUEST_S_MAX: Final = 5.0
METRICS: Final = (
    ("lag", "kraft_table_lag_records", "gauge", "records that are not in the table yet"),
    ("batch", "kraft_table_batch", "gauge", "number of the last batch"),
    ("rows", "kraft_table_rows_total", "counter", "rows written since the start"),
    ("deadLetters", "kraft_table_dead_letters", "gauge", "rows of the table of dead letters"),
    (
        "oldestDeadLetterSeconds",
        "kraft_table_oldest_dead_letter_seconds",
        "gauge",
        "age of the oldest dead letter, in seconds",
    ),
    ("maintenanceFailures", "kraft_table_maintenance_failures_total", "counter", "passes of maintenance that failed"),
    ("lastBatchSeconds", "kraft_table_last_batch_seconds", "gauge", "seconds that the last batch took"),
    ("batches", "kraft_table_batches_total", "counter", "batches committed since the start"),
    (
        "commitSeconds",
        "kraft_table_commit_seconds_total",
        "counter",
        "seconds of transactions since the start",
    ),
    (
        "bytes",
        "kraft_table_read_bytes_total",
        "counter",
        "uncompressed bytes of records read since the start",
    ),
    (
        "writtenBytes",
        "kraft_table_written_bytes_total",
        "counter",
        "bytes of files written since the start",
    ),
)
"""Field of the status, metric, its type and its help text. An unknown field has no line."""
LAG: Final = ("kraft_table_partition_lag_records", "records of the partition that are not in the table yet")
"""Metric and help text of a gauge with the labels `table`, `topic` and `partition`."""


LETTERS_S: Final = 60.0
"""Seconds after which the table of dead letters is read again: a replay in another process removes rows of it."""
_LOG: Final = logging.getLogger(__name__)


class Letters:
    """The number of dead letters, and the time of the oldest record among them."""

    def __init__(self, spec: TableSpec) -> None:
        """Raises OSError if the table cannot be read."""
        self._table = open_table(spec, dead_letters=True)
        self._storage = open_storage(spec.dead_letter_path, spec.storage)
        self._times: dict[str, float | None] = {}
        self._read_at = 0.0
        self.rows = 0
        self.oldest: float | None = None
        """Unix time in seconds, by the timestamps of the records; None without dead letters, or if no dead letter has
        a timestamp."""
        self.read()

    def read(self) -> None:
        """Read the table again. Reads the footers of new files only. Raises OSError."""
        live = self._table.live()
        self._times = {file.path: self._time(file.path) for file in live}
        self.rows = sum(file.rows for file in live)
        self.oldest = min((at for at in self._times.values() if at is not None), default=None)
        self._read_at = time.monotonic()

    def look(self, *, now: bool = False) -> None:
        """As `read`, after LETTERS_S or `now`. If the table cannot be read, the values stay."""
        if not now and time.monotonic() - self._read_at < LETTERS_S:
            return
        try:
            self.read()
        except (OSError, ValueError) as e:  # ValueError: the table is being removed
            self._read_at = time.monotonic()
            _LOG.warning("the dead letters of %s cannot be counted: %s", self._storage.uri, e)

    def _time(self, path: str) -> float | None:
        """The least timestamp of a file's records."""
        if path in self._times:
            return self._times[path]
        try:
            with self._storage.open(path) as source, pq.ParquetFile(source) as file:
                column = file.schema_arrow.get_field_index("timestamp")
                groups = [file.metadata.row_group(n).column(column) for n in range(file.metadata.num_row_groups)]
        except FileNotFoundError:  # removed meanwhile
            return None
        found = [one.statistics.min for one in groups if one.is_stats_set and one.statistics.has_min_max]
        return min((at.replace(tzinfo=UTC).timestamp() for at in found), default=None)


class TableStatus:
    """The status of one run: the runner calls `add` and `look`, the HTTP server calls `status`."""

    def __init__(self, spec: TableSpec) -> None:
        """Raises OSError if the table of dead letters cannot be read."""
        self._spec = spec
        self._runner: Runner | None = None
        self._last: Progress | None = None
        self._at = ""
        self._rows = self._batches = self._bytes = self._written = 0
        self._commit_s = 0.0
        self._letters = Letters(spec)

    def watch(self, runner: Runner) -> None:
        """Report lag and maintenance of this runner from now on."""
        self._runner = runner

    def add(self, done: Progress) -> None:
        """Add a committed batch to the status."""
        self._rows += done.rows
        self._letters.look(now=done.dead > 0)
        self._batches, self._commit_s = self._batches + 1, self._commit_s + done.commit_s
        self._bytes, self._written = self._bytes + done.size, self._written + done.written
        self._last, self._at = done, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def look(self) -> None:
        """Count the dead letters again, now and then. The runner calls this between batches."""
        self._letters.look()

    def status(self) -> dict[str, Any]:
        """name, rows, deadLetters, batches, commitSeconds, bytes, writtenBytes, maintenanceFailures, and
        maintenanceError if the last pass failed.

        oldestDeadLetterSeconds is 0 without dead letters, and missing if no dead letter has a timestamp. lag appears
        after the first check of the topics. batch, lastBatchRows, lastBatchTime and lastBatchSeconds appear after a
        batch.
        """
        found: dict[str, Any] = {"name": self._spec.label, "rows": self._rows, "deadLetters": self._letters.rows}
        if self._letters.oldest is not None or not self._letters.rows:
            age = 0.0 if self._letters.oldest is None else time.time() - self._letters.oldest
            found["oldestDeadLetterSeconds"] = round(max(0.0, age), 3)
        found |= {"batches": self._batches, "commitSeconds": round(self._commit_s, 3)}
        found |= {"bytes": self._bytes, "writtenBytes": self._written}
        if self._runner is not None:
            found["maintenanceFailures"] = self._runner.care_failures
            if self._runner.care_error is not None:
                found["maintenanceError"] = self._runner.care_error
            if self._runner.behind is not None:
                found["lag"] = self._runner.behind
        if self._last is not None:
            found |= {"batch": self._last.batch, "lastBatchRows": self._last.rows, "lastBatchTime": self._at}
            found["lastBatchSeconds"] = round(self._last.seconds, 3)
        return found

    def metrics(self) -> str:
        """The status in Prometheus' text format."""
        return _text([(self._spec.label, self.status())]) + _lags([self])

    def lags(self) -> list[str]:
        """Metrics of the partitions that have been checked."""
        lags = {} if self._runner is None else self._runner.lags
        name, table = LAG[0], self._spec.label
        return [
            f'{name}{{table="{table}",topic="{topic}",partition="{partition}"}} {lag}'
            for (topic, partition), lag in sorted(lags.items())
        ]


class FleetStatus:
    """The status of all tables of one specification, which are added one by one."""

    def __init__(self, name: str) -> None:
        self._name, self._each = name, dict[str, TableStatus]()
        self._fleet: Fleet | None = None

    def watch(self, fleet: Fleet) -> None:
        """Report the failures of this fleet, too."""
        self._fleet = fleet

    def of(self, spec: TableSpec) -> TableStatus:
        """Add a table and return its status. Raises OSError."""
        found = self._each[spec.path] = TableStatus(spec)
        return found

    def status(self) -> dict[str, Any]:
        """name, `tables`, and sums of rows, deadLetters and maintenanceFailures; lag once every table has it."""
        tables = [self._table(path, shown) for path, shown in list(self._each.items())]
        failures = {} if self._fleet is None else dict(self._fleet.failures)
        refused = [{"name": label, "error": f"{e}"} for label, e in failures.items() if label not in self._each]
        found: dict[str, Any] = {"name": self._name, "tables": [*tables, *refused]}
        for field in ("rows", "deadLetters", "maintenanceFailures"):
            found[field] = sum(table.get(field, 0) for table in tables)
        if tables and all("lag" in table for table in tables):
            found["lag"] = sum(table["lag"] for table in tables)
        return found

    def _table(self, path: str, shown: TableStatus) -> dict[str, Any]:
        failure = None if self._fleet is None else self._fleet.failures.get(path)
        error = {} if failure is None else {"error": f"{failure}" or type(failure).__name__}
        return {**shown.status(), "path": path, **error}

    def metrics(self) -> str:
        """Metrics of all tables in Prometheus' text format, with the label `table`."""
        text = _text([(table["name"], table) for table in self.status()["tables"]])
        return text + _lags(list(self._each.values()))


def _text(tables: Sequence[tuple[str, dict[str, Any]]]) -> str:
    lines = []
    for field, name, kind, text in METRICS:
        values = [(label, status[field]) for label, status in tables if field in status]
        if values:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            lines += [f'{name}{{table="{label}"}} {value}' for label, value in values]
    return "\n".join(lines) + "\n"


def _lags(tables: Sequence[TableStatus]) -> str:
    lines = [line for table in tables for line in table.lags()]
    head = [f"# HELP {LAG[0]} {LAG[1]}", f"# TYPE {LAG[0]} gauge"]
    return "".join(f"{line}\n" for line in (*head, *lines)) if lines else ""


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error with its traceback, unless the client has closed the connection, as probes that time out do."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serve(shown: TableStatus | FleetStatus, port: int) -> Iterator[int]:
    """Serve on `port` (0: any) until the block ends; yields the port. Raises OSError if the port is taken."""

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_S_MAX

        def do_GET(self) -> None:
            status, kind, text = _answer(shown, self.path.partition("?")[0])
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as in the class above
            """Do nothing: requests come every few seconds."""

    server = _Server(("", port), Handler)
    thread = threading.Thread(target=server.serve_forever, name="status", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(shown: TableStatus | FleetStatus, path: str) -> tuple[int, str, str]:
    if path == "/status":
        return 200, "application/json", json.dumps(shown.status())
    if path == "/metrics":
        return 200, "text/plain; version=0.0.4; charset=utf-8", shown.metrics()
    if path == "/readyz":
        ready = "lag" in shown.status()
        return (200, "text/plain", "reads\n") if ready else (503, "text/plain", "the topics have not been seen yet\n")
    return 404, "text/plain", "there are /status, /metrics, /readyz\n"
