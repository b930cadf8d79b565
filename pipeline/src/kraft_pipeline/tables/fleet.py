"""Runs many tables of one specification, each with a runner in a thread of its own, on one Spark.

If a path has `{topic}`, each topic has its own table; new topics get theirs within `LOOK_S` seconds. Tables have their
own offsets and transactions. If a table fails for good, the others continue. The status shows the failure, and the
process raises it at its end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from kraft_pipeline.sources import offsets
from kraft_pipeline.tables.errors import panics_explained
from kraft_pipeline.tables.runner import Runner, may_pass
from kraft_pipeline.tables.specs.routes import check_place, of_topic
from kraft_pipeline.tables.specs.table_spec import SpecError, TableSpec
from kraft_pipeline.tables.stores.opening import options_of
from kraft_protocol.client.cluster import Cluster
from kraft_protocol.client.errors import ClientError

LOOK_S: Final = 15.0
"""Seconds between checks for new topics."""
STEP_S: Final = 0.5


class Tables(NamedTuple):
    """The specs of all current tables, with `{topic}` expanded, and the refused tables."""

    good: list[TableSpec]
    refused: dict[str, SpecError]
    """By label: tables whose paths collide with those of others, because of the names of topics."""


def tables_of(specs: Sequence[TableSpec], running: Sequence[TableSpec] = ()) -> Tables:
    """The tables of `specs`. Raises ClientError.

    If tables collide, those that run already stay, then those with a path of their own.
    """
    found, labels = Tables([*running], {}), {table.label for table in running}
    for spec in sorted(specs, key=lambda spec: spec.is_for_each_topic):
        for table in _expanded(spec):
            if table.label in labels:
                continue
            try:
                check_place(table, found.good)
            except SpecError as e:
                found.refused[table.label] = e
            else:
                found.good.append(table)
    return found


def _expanded(spec: TableSpec) -> Iterator[TableSpec]:
    if not spec.is_for_each_topic:
        yield spec
        return
    options = options_of(spec)
    with Cluster(options.settings) as cluster:
        names = sorted({topic for topic, _ in offsets.partitions(cluster, options, may_miss=True)})
    for topic in names:
        yield of_topic(spec, topic)


class Fleet:
    """Runs the writers of several tables, with the interface of a `Runner`."""

    def __init__(
        self,
        specs: Sequence[TableSpec],
        writer: Callable[[TableSpec], Runner],
        *,
        wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`writer` makes the runner of a table, with an engine of its own; `wait` receives reasons of pauses."""
        self._specs, self._writer, self._wait = specs, writer, wait
        self._stopping = False
        self._has_begun = self._waits = False
        """Whether a table has begun or failed; whether a table could not begin at the last look."""
        self.runners: dict[str, Runner] = {}
        """Runners by the table's path, in the order of their start."""
        self.failures: dict[str, Exception] = {}
        """The error that ended a table, by its path; the error of a refused table, by its label."""
        self._threads: list[threading.Thread] = []

    def stop(self) -> None:
        """Make `run` return after the current batches."""
        self._stopping = True
        for runner in list(self.runners.values()):
            runner.stop()

    def run(self, *, once: bool = False) -> int:
        """Run until `stop`, or with `once` until all records are written. Returns the number of rows.

        Raises the first failure of a table after all others have ended.
        """
        rows = self._each_once() if once else self._all_on()
        if self.failures:
            raise next(iter(self.failures.values()))
        return rows

    def _each_once(self) -> int:
        """Run the tables one by one, because a batch uses all of Spark."""
        rows = 0
        tables = tables_of(self._specs)
        self._refuse(tables)
        for table in tables.good:
            if not self._stopping:
                try:
                    rows += self._begun(table).run(once=True)
                except Exception as e:
                    self.failures[table.path] = e
        return rows

    def _all_on(self) -> int:
        """Run a runner for each table until all have failed or `stop` is called. Returns the number of written rows."""
        rows: list[int] = []
        looked = -LOOK_S
        while not self._stopping:
            if time.monotonic() - looked >= LOOK_S:
                self._look(rows)
                looked = time.monotonic()
            if self._has_begun and not self._waits and not any(thread.is_alive() for thread in self._threads):
                break  # all have failed
            time.sleep(STEP_S)
        for thread in self._threads:
            thread.join()
        return sum(rows)

    def _look(self, rows: list[int]) -> None:
        """Start runners of new tables."""
        try:
            tables = tables_of(self._specs, [runner.spec for runner in self.runners.values()])
        except (ClientError, OSError) as e:
            if not may_pass(e):
                raise
            self._wait(f"topics cannot be listed: {e}")
            return
        self._refuse(tables)
        self._waits = False
        for table in tables.good:
            if table.path not in self.runners and table.path not in self.failures and not self._stopping:
                self._begin(table, rows)

    def _begin(self, table: TableSpec, rows: list[int]) -> None:
        """Start the runner of a table in a thread. If the table cannot be read now, the next look tries again."""
        try:
            runner = self._begun(table)
        except Exception as e:
            if may_pass(e):
                self._waits = True
                self._wait(f"{table.label} begins later: {e}")
            else:
                self._has_begun = True
                self._fail(table, e)
            return
        self._has_begun = True
        thread = threading.Thread(target=self._work, args=(table, runner, rows), name=table.label, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _refuse(self, tables: Tables) -> None:
        for label, error in tables.refused.items():
            if label not in self.failures:
                self.failures[label] = error
                self._wait(f"{label} is not written, other tables continue: {error}")

    @panics_explained()
    def _begun(self, table: TableSpec) -> Runner:
        runner = self.runners[table.path] = self._writer(table)
        if self._stopping:
            runner.stop()
        return runner

    def _work(self, table: TableSpec, runner: Runner, rows: list[int]) -> None:
        try:
            rows.append(runner.run())
        except Exception as e:
            self._fail(table, e)

    def _fail(self, table: TableSpec, error: Exception) -> None:
        self.failures[table.path] = error
        self._wait(f"{table.label} has ended, other tables continue: {error}")
