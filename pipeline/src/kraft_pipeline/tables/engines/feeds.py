"""The interface between an engine, which requests batches, and the runner, which writes them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from kraft_pipeline.sources import planning
from kraft_pipeline.sources.positions import Offsets
from kraft_pipeline.tables.engines.plans import Backfill, Live, Plan, Planner, Sizes
from kraft_pipeline.tables.losses import Losses, judged
from kraft_pipeline.tables.specs.table_spec import TableSpec
from kraft_pipeline.tables.stores.opening import open_table, options_of
from kraft_pipeline.tables.stores.storage import open_storage
from kraft_protocol.client.cluster import Cluster
from kraft_protocol.client.fetch import Range

POLL_S: Final = 0.5
"""Seconds between checks of an idle table for new records."""
TASK_RECORDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Feed:
    """The records that a run reads. It is sent to the process that plans batches. `since_ms`: start of a backfill,
    Unix time."""

    spec: TableSpec
    once: bool
    """Whether the run ends when all records that exist at its start are written."""
    backfill: bool = False
    since_ms: int | None = None


def pieces(plan: Plan, tasks: int) -> list[Range]:
    """Split the ranges of a batch into pieces, one per task."""
    return planning.split(plan.ranges, min_partitions=tasks, max_records=TASK_RECORDS)


class Writer(Protocol):
    """The runner as an engine sees it. Its methods must not run concurrently."""

    feed: Feed
    sizes: Sizes
    behind: int | None
    lags: Offsets

    @property
    def stopping(self) -> bool:
        """Whether no further batch may begin."""

    def batch(self, cluster: Cluster, plan: Plan) -> None:
        """Write and commit a batch. Raises what `Runner.run` raises."""

    def between(self) -> None:
        """Do the work between batches. Raises FencedError if another writer has taken over the table."""


class Asking:
    """Plans the next batch of a feed. A batch that is not full waits for more records, at most `maxDelay`."""

    def __init__(self, feed: Feed, sizes: Sizes) -> None:
        self._feed, self._waiting_since = feed, 0.0
        spec, options = feed.spec, options_of(feed.spec)
        self._table = open_table(spec, backfill=feed.backfill)
        self._dead = open_table(spec, dead_letters=True, backfill=feed.backfill)
        self._losses = losses = Losses(open_storage(spec.path, spec.storage), spec.app_id)
        self._planner: Planner = (
            Backfill(spec, sizes, lambda: open_table(spec).state(), losses, feed.since_ms)
            if feed.backfill
            else Live(spec, options, sizes, losses, once=feed.once)
        )

    def next(self, cluster: Cluster, behind: Callable[[int, Offsets], None]) -> Plan | None:
        """Return the batch to write now, or None. Calls `behind` with the number of records not in the table yet, in
        all and of each partition.

        Raises ClientError, DataLossError, OSError, SpecError.
        """
        state = self._table.state()
        judged(state.lost, self._losses, strict=self._feed.spec.fail_on_data_loss)
        plan = self._planner.plan(cluster, state, self._dead.state())
        behind(0 if plan is None else plan.records + plan.lag, self._planner.lags)
        if plan is None:
            self._waiting_since = 0.0
            return None
        self._waiting_since = self._waiting_since or time.monotonic()
        waited_s = time.monotonic() - self._waiting_since
        if not (self._feed.once or plan.full or waited_s >= self._feed.spec.max_delay_s):
            return None
        self._waiting_since = 0.0
        return plan


def poll(writer: Writer, cluster: Cluster) -> None:
    """Write batches in this process until the writer stops, or with `once` until no records are left."""
    asking = Asking(writer.feed, writer.sizes)

    def behind(records: int, lags: Offsets) -> None:
        writer.behind, writer.lags = records, lags

    while not writer.stopping:
        writer.between()
        plan = asking.next(cluster, behind)
        if plan is not None:
            writer.batch(cluster, plan)
        elif writer.feed.once:
            return
        else:
            time.sleep(POLL_S if not writer.behind else min(POLL_S, writer.feed.spec.max_delay_s))
