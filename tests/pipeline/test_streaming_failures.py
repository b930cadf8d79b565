"""Python workers of Spark that die while they run a batch: the run goes on, or ends after four failures."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.tables import runner
from kraft_pipeline.tables.engines.engine import SparkEngine
from kraft_pipeline.tables.engines.tasks import Job, Result
from kraft_pipeline.tables.errors import SPARK, TaskError
from kraft_pipeline.tables.specs import table_spec
from kraft_protocol.client.fetch import Range
from tests.compat.pipeline.test_pipeline_client import create, produced
from tests.compat.pipeline.test_pipeline_table import document, rows, written_files
from tests.compat.targets import Ours
from tests.pipeline.test_streaming import writing
from tests.spark import spark

__all__ = ["spark"]
pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("spark-kraftcluster")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    target = Ours("kraftcluster", tmp_path_factory.mktemp("server"))
    yield target.start()
    target.kill()


class Dying(SparkEngine):
    """Before its tasks, as many batches as `deaths` have a task that ends its Python worker."""

    def __init__(self, spark: Any, deaths: int) -> None:
        super().__init__(spark)
        self.deaths = deaths

    def run(self, job: Job, ranges: Sequence[Range]) -> list[Result]:
        if self.deaths:
            self.deaths -= 1
            self.map(lambda _: os._exit(13), [0])
        return super().run(job, ranges)


def test_a_batch_survives_three_failures_of_spark(spark: Any, cluster: Ours, tmp_path: Path) -> None:
    create(cluster, "three")
    produced(cluster, "three", 40)
    given = document(cluster, "three", tmp_path / "t", "delta", commit={"maxDelay": "1ms"})
    with writing(given, Dying(spark, 3)) as run:
        run.until(lambda: run.reported)
        produced(cluster, "three", 10, first=40)
        run.until(lambda: sum(done.rows for done in run.reported) == 50)
    assert run.raised is None
    assert len(run.waited) == 3
    assert Counter(row["offset"] for row in rows(tmp_path / "t", "delta")) == Counter(range(50))
    parsed = table_spec.parse(given)
    assert written_files(parsed) == runner.open_table(parsed).files()


@pytest.mark.slow
def test_the_fourth_failure_of_spark_in_a_row_ends_the_run(spark: Any, cluster: Ours, tmp_path: Path) -> None:
    create(cluster, "four")
    produced(cluster, "four", 40)
    given = document(cluster, "four", tmp_path / "t", "delta", commit={"maxDelay": "1ms"})
    engine = Dying(spark, 1000)
    with pytest.raises(
        TaskError, match=r"^Spark has failed a batch 4 times \(is spec.engine.memory enough\?\): "
    ) as reported:
        runner.Runner(table_spec.parse(given), engine).run()
    assert (reported.value.failure.code, reported.value.failure.retriable, engine.deaths) == (SPARK, False, 996)
    assert runner.Runner(table_spec.parse(given), SparkEngine(spark)).run(once=True) == 40
    assert Counter(row["offset"] for row in rows(tmp_path / "t", "delta")) == Counter(range(40))
