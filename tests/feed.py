"""Writes tables of records without a cluster: everything but the network is the pipeline's own code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kraft_pipeline.codec import Decoder
from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables import values
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.engines.plans import Plan
from kraft_pipeline.tables.engines.tasks import Job, Result, write
from kraft_pipeline.tables.runner import Progress, Runner
from kraft_pipeline.tables.specs.table_spec import TableSpec
from kraft_pipeline.tables.stores.opening import open_table
from kraft_protocol.client.fetch import Range
from kraft_protocol.records.batch import build_batch


class Fed(InlineEngine):
    """An engine whose tasks read their records here instead of from brokers."""

    def __init__(self, logs: dict[int, bytes]) -> None:
        self._logs = logs

    def run(self, job: Job, ranges: Sequence[Range]) -> list[Result]:
        return [self._task(job, one) for one in ranges if one.end > one.start]

    def _task(self, job: Job, wanted: Range) -> Result:
        decoder = Decoder(wanted.topic, wanted.partition, values.RAW)
        batches = decoder.decode(self._logs[wanted.start], check_crc=False)
        return write(job, wanted, batches, decoder.damaged)


class Feed:
    """A writer of one table from topic `t`, which has one partition."""

    def __init__(self, given: TableSpec, report: Callable[[Progress], None] = lambda _: None) -> None:
        self._given, self._logs, self._end = given, dict[int, bytes](), 0
        self.runner: Any = Runner(given, Fed(self._logs), report=report)

    def begin(self) -> None:
        """Take over a table that another writer created."""
        self.runner.begin()

    def values(self, *values: bytes | None) -> None:
        """Write one batch of values."""
        start, end = self._end, self._end + len(values)
        self.put(start, end, build_batch([(b"k", value) for value in values], base_offset=start))

    def put(self, start: int, end: int, log: bytes, topic_id: str = "00" * 16) -> None:
        """Write one batch of record batches."""
        self._logs[start], self._end = log, end
        states = [open_table(self._given, dead_letters=dead).state() for dead in (False, True)]
        position = Position({("t", 0): end}, "c", {"t": topic_id}, {("t", 0): 0})
        self.runner.batch(None, Plan(*states, {("t", 0): start}, position, 0, again=False, full=True))
