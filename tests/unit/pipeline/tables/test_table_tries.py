"""The number of a run's retries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables import runner
from kraft_pipeline.tables.engines.plans import Plan
from kraft_pipeline.tables.errors import SPARK, Failure, TaskError
from kraft_pipeline.tables.stores.opening import open_table
from kraft_protocol.records.batch import build_batch
from tests.feed import Fed, Feed
from tests.unit.pipeline.tables.test_table_firsts import table


def test_a_batch_reports_its_bytes_and_the_lag_of_each_partition(tmp_path: Path) -> None:
    reported: list[runner.Progress] = []
    feed = Feed(table(tmp_path / "t"), reported.append)
    feed.runner.lags = {("t", 0): 5, ("t", 1): 2}
    feed.values(b'{"id":1}', b'{"id":2}')
    assert feed.runner.lags == {("t", 0): 3, ("t", 1): 2}
    (done,) = reported
    files = list((tmp_path / "t").glob("*.parquet"))
    assert done.written == sum(file.stat().st_size for file in files) > 0
    assert done.size >= len(b'{"id":1}{"id":2}')
    assert 0 < done.commit_s <= done.seconds


class Failing(Fed):
    """An engine whose runs fail, some of them after a batch."""

    def __init__(self, codes: list[str], batches: set[int]) -> None:
        super().__init__({n: build_batch([(b"k", b'{"n":1}')], base_offset=n) for n in range(len(codes))})
        self._codes, self._batches, self.runs = codes, batches, 0

    def drive(self, writer: Any, cluster: Any) -> None:
        number, self.runs = self.runs, self.runs + 1
        if number in self._batches:
            states = [open_table(writer.spec, dead_letters=dead).state() for dead in (False, True)]
            end = Position({("t", 0): number + 1}, "c", {"t": "00" * 16}, {("t", 0): 0})
            writer.batch(cluster, Plan(*states, {("t", 0): number}, end, 0, again=False, full=True))
        raise TaskError(Failure(self._codes[number], "environment", True, "killed"))


@pytest.mark.parametrize(
    ("codes", "batches", "runs"),
    [
        ([SPARK] * 9, set(), 4),
        ([SPARK] * 9, {3}, 7),
        ([SPARK, "OSError", "OSError", SPARK, "OSError", SPARK, "OSError", SPARK, SPARK], set(), 8),
    ],
)
def test_a_run_ends_after_four_failures_of_spark_without_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: list[str], batches: set[int], runs: int
) -> None:
    """Failures of the environment are retried for ever; before, those of Spark were, too."""
    monkeypatch.setattr(runner, "POLL_S", 0.0)
    engine, waits = Failing(codes, batches), list[str]()
    with pytest.raises(TaskError, match=r"^Spark has failed a batch 4 times .*: killed$") as reported:
        runner.Runner(table(tmp_path / "t"), engine, wait=waits.append).run()
    assert (engine.runs, len(waits)) == (runs, runs - 1)
    assert not reported.value.failure.retriable
