"""The cost of a batch of a table, day by day over a week: it must not grow with the number of earlier batches.

`python -m bench.measurements.table_week [--day N] [--days N] [kind ...]` writes N batches a day (1,440: one a minute)
of 20 records into a Delta, Iceberg or Parquet table, with maintenance 24 times a day, as fast as it can. It prints the
medians of each day: milliseconds of processor time of a batch, milliseconds of its transaction, and of a pass of
maintenance. After each pass all files become an hour older, so that logs are trimmed as in a true
week. Iceberg's commits become dearer until the table has 1,000 snapshots.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from kraft_pipeline.codec import Decoder
from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables import maintenance, values
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.engines.plans import Plan
from kraft_pipeline.tables.engines.tasks import Job, Result, write
from kraft_pipeline.tables.runner import Progress, Runner
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.stores.opening import open_table
from kraft_protocol.client.fetch import Range
from kraft_protocol.records.batch import build_batch

RECORDS: Final = 20
PASSES: Final = 24
"""Passes of maintenance a day, as `maintenance.every: 1h` has them."""
KINDS: Final = ("delta", "iceberg", "parquet")


class Fed(InlineEngine):
    """Tasks decode records from memory instead of fetching them."""

    def run(self, job: Job, ranges: Sequence[Range]) -> list[Result]:
        """Make, decode and write the records of each range, one range after another."""
        found = []
        for wanted in ranges:
            records = [(b"k", b"x" * 100) for _ in range(wanted.start, wanted.end)]
            decoder = Decoder(wanted.topic, wanted.partition, values.RAW)
            batches = decoder.decode(build_batch(records, base_offset=wanted.start), check_crc=False)
            found.append(write(job, wanted, batches, decoder.damaged))
        return found


def _spec(kind: str, folder: Path) -> table_spec.TableSpec:
    spec = {"bootstrapServers": "none:1", "topics": {"names": ["t"]}, "engine": {"mode": "inline"}}
    table = {"format": kind, "path": str(folder / "table")}
    head = {"apiVersion": table_spec.API_VERSION, "kind": table_spec.KIND, "metadata": {"name": "week"}}
    return table_spec.parse({**head, "spec": {**spec, "table": table}})


def _spent_ms(call: Callable[[], Any]) -> float:
    begun = time.process_time()
    call()
    return 1000 * (time.process_time() - begun)


def _age(folder: Path) -> None:
    for file in folder.rglob("*"):
        when = file.stat().st_mtime - 24 * 3600 / PASSES
        os.utime(file, (when, when))


def week(kind: str, folder: Path, day: int, days: int) -> float:
    """Write and print the days. Returns the last day's processor time of a batch in relation to the first day's."""
    spec, batches, end = _spec(kind, folder), list[Progress](), 0
    runner, cluster = Runner(spec, Fed(), report=batches.append), None
    table, dead = open_table(spec), open_table(spec, dead_letters=True)  # as a planner keeps them

    def batch() -> None:
        nonlocal end
        position = Position({("t", 0): end + RECORDS}, "c", {"t": "00" * 16}, {("t", 0): 0})
        plan = Plan(table.state(), dead.state(), {("t", 0): end}, position, 0, again=False, full=True)
        runner.batch(cluster, plan)  # type: ignore[arg-type]  # without a group, no broker is asked
        end += RECORDS

    medians = []
    for number in range(days):
        spent, care, batches[:] = list[float](), list[float](), []
        for nth in range(day):
            spent.append(_spent_ms(batch))
            if nth % max(1, day // PASSES) == 0:
                _age(folder)
                care.append(_spent_ms(lambda: maintenance.care(spec, Fed())))
        medians.append(median(spent))
        commit_ms = 1000 * median(done.commit_s for done in batches)
        print(
            f"{kind}, day {number + 1}: batch {medians[-1]:.1f} ms, transaction {commit_ms:.1f} ms, "
            f"maintenance {median(care):.1f} ms",
            flush=True,
        )
    rows = sum(file.rows for file in open_table(spec).live())
    if rows != end:
        sys.exit(f"{kind}: {rows} rows in the table, {end} were written")
    return medians[-1] / medians[0]


def main() -> None:
    """Print the figures of each kind, and what a batch of the last day costs in relation to the first day."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--day", type=int, default=1440, help="batches a day (default: %(default)s)")
    parser.add_argument("--days", type=int, default=7, help="days to simulate (default: %(default)s)")
    parser.add_argument("kinds", nargs="*", default=KINDS, metavar="KIND", help="delta, iceberg, parquet")
    options = parser.parse_args()
    for kind in options.kinds:
        with tempfile.TemporaryDirectory() as folder:
            ratio = week(kind, Path(folder), options.day, options.days)
        print(f"{kind}: a batch of the last day costs {ratio:.2f} of one of the first (aim 1.2)")


if __name__ == "__main__":
    main()
