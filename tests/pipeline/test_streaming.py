"""KafkaTable as a query of Structured Streaming: its progress, its end, its reaction to failures."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.tables import runner
from kraft_pipeline.tables.engines.engine import Engine, InlineEngine, SparkEngine
from kraft_pipeline.tables.engines.tasks import Job, Result
from kraft_pipeline.tables.errors import FencedError, TaskError
from kraft_pipeline.tables.specs import table_spec
from kraft_protocol.client.fetch import Range
from tests.compat.pipeline.test_pipeline_client import create, produced
from tests.compat.pipeline.test_pipeline_table import document, rows, send, written_files
from tests.compat.targets import Ours
from tests.spark import spark

__all__ = ["spark"]
WAIT_S = 240.0
pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("spark-kraftcluster")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    target = Ours("kraftcluster", tmp_path_factory.mktemp("server"))
    yield target.start()
    target.kill()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).removeprefix("test_")


class Writing:
    """A run in a thread: its commits, its waits and its exception."""

    def __init__(self, given: dict[str, Any], engine: SparkEngine) -> None:
        self.reported: list[runner.Progress] = []
        self.waited: list[str] = []
        self.raised: BaseException | None = None
        self.runner = runner.Runner(
            table_spec.parse(given), engine, report=self.reported.append, wait=self.waited.append
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.runner.run()
        except BaseException as e:
            self.raised = e

    def until(self, found: Any) -> None:
        deadline = time.monotonic() + WAIT_S
        while not found():
            assert time.monotonic() < deadline
            assert self._thread.is_alive(), self.raised
            time.sleep(0.1)

    def end(self) -> None:
        self.runner.stop()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


@contextmanager
def writing(given: dict[str, Any], engine: SparkEngine) -> Iterator[Writing]:
    found = Writing(given, engine)
    try:
        yield found
    finally:
        found.end()


def test_batches_are_micro_batches_that_listeners_see(spark: Any, cluster: Ours, name: str, tmp_path: Path) -> None:
    from pyspark.sql.streaming import StreamingQueryListener

    seen: list[dict[str, Any]] = []

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            """Nothing to do: the progress has the name as well."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            if event.progress.name.startswith("t-kraft-table-"):
                seen.append({"rows": event.progress.numInputRows, "end": event.progress.sources[0].endOffset})

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            """Nothing to do: the test does not count it."""

    create(cluster, name, 2)
    given = document(cluster, name, tmp_path / "t", "delta", commit={"maxDelay": "1ms", "maxRows": 60})
    listener = Listener()
    spark.streams.addListener(listener)
    try:
        with writing(given, SparkEngine(spark)) as run:
            run.until(lambda: run.runner.behind == 0)
            produced(cluster, name, 100)
            run.until(lambda: sum(done.rows for done in run.reported) == 100 and run.runner.behind == 0)
            assert len(spark.streams.active) == 1
            produced(cluster, name, 7, first=100)
            run.until(lambda: sum(done.rows for done in run.reported) == 107)
            run.until(lambda: sum(row["rows"] > 0 for row in seen) >= len(run.reported))
    finally:
        spark.streams.removeListener(listener)
    assert run.raised is None
    assert spark.streams.active == []
    assert [done.batch for done in run.reported] == list(range(len(run.reported)))
    assert all('"end"' in str(row["end"]) or "end" in row["end"] for row in seen if row["rows"])
    assert Counter(row["offset"] for row in rows(tmp_path / "t", "delta")) == Counter(range(107))


def test_a_table_continues_from_its_own_offsets_without_a_checkpoint(
    spark: Any, cluster: Ours, name: str, tmp_path: Path
) -> None:
    """Runs with and without Spark alternate: the table holds the offsets."""
    create(cluster, name)
    given = table_spec.parse(document(cluster, name, tmp_path / "t", "iceberg"))
    engines: list[Engine] = [
        SparkEngine(spark),
        InlineEngine(),
        SparkEngine(spark),
        SparkEngine(spark),
    ]
    written = []
    for number, engine in enumerate(engines):
        produced(cluster, name, 10, first=10 * number)
        written.append(runner.Runner(given, engine).run(once=True))
        assert runner.Runner(given, engine).run(once=True) == 0
    assert written == [10, 10, 10, 10]
    assert Counter(row["offset"] for row in rows(tmp_path / "t", "iceberg")) == Counter(range(40))


def test_a_failure_to_plan_keeps_its_type(spark: Any, cluster: Ours, name: str, tmp_path: Path) -> None:
    given = document(cluster, name, tmp_path / "t", "parquet", kafka={"kafkaConsumer.pollTimeoutMs": "500"})
    with pytest.raises(TaskError, match=f"^topic {name}: UNKNOWN_TOPIC_OR_PARTITION") as reported:
        runner.Runner(table_spec.parse(given), SparkEngine(spark)).run(once=True)
    assert (reported.value.failure.kind, reported.value.failure.retriable) == ("environment", True)
    given["spec"]["commit"] = {"maxDelay": "1ms"}
    with writing(given, SparkEngine(spark)) as run:
        run.until(lambda: run.waited)
        create(cluster, name)
        produced(cluster, name, 10)
        run.until(lambda: run.reported)
    assert run.raised is None
    with pytest.raises(table_spec.SpecError, match="backfill by key is not supported"):
        given["spec"]["table"] |= {"format": "delta", "path": f"{tmp_path}/k", "mode": "upsert", "key": ["key"]}
        runner.Runner(table_spec.parse(given), SparkEngine(spark), backfill=True).run()


def test_a_replaced_writer_ends_while_idle(spark: Any, cluster: Ours, name: str, tmp_path: Path) -> None:
    create(cluster, name)
    produced(cluster, name, 10)
    given = document(cluster, name, tmp_path / "t", "delta", commit={"maxDelay": "1ms"})
    with writing(given, SparkEngine(spark)) as run:
        run.until(lambda: run.reported)
        runner.Runner(table_spec.parse(given), InlineEngine()).run(once=True)
        run._thread.join(WAIT_S)
    assert isinstance(run.raised, FencedError)


def test_a_table_that_is_removed_under_its_planner_ends_the_run(
    spark: Any, cluster: Ours, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Parquet table finds it while it plans. Its exception became a TaskError, so the command ended with code 1."""
    create(cluster, name)
    produced(cluster, name, 10)
    monkeypatch.setattr(runner.Runner, "between", lambda _: None)  # it would notice first
    given = document(cluster, name, tmp_path / "t", "parquet", commit={"maxDelay": "1ms"})
    with writing(given, SparkEngine(spark)) as run:
        run.until(lambda: run.reported)
        produced(cluster, name, 10)
        run.until(lambda: len(run.reported) > 1)  # so the planner has seen the table
        shutil.rmtree(tmp_path / "t" / "_kraft")
        run._thread.join(WAIT_S)
    assert isinstance(run.raised, FencedError)


def test_spark_makes_the_same_fields_and_dead_letters(spark: Any, cluster: Ours, name: str, tmp_path: Path) -> None:
    create(cluster, name)
    value = {"format": "json", "evolve": "additive"}
    sent = [b'{"n": 1}', b"no object", b'{"n": 2, "more": {"a": [1]}}', b'{"n": "text"}']
    engines: dict[str, Engine] = {"spark": SparkEngine(spark), "inline": InlineEngine()}
    for first in (0, 4):
        send(cluster, name, sent if not first else [b'{"n": 3, "last": 1.5}'])
        for where, engine in engines.items():
            given = document(cluster, name, tmp_path / where, "delta", value=value)
            runner.Runner(table_spec.parse(given), engine).run(once=True)
    for table in ("", "_dead_letters"):
        found = [
            sorted(map(str, ({**row, "time": 0} for row in rows(f"{tmp_path}/{where}{table}", "delta"))))
            for where in engines
        ]
        assert found[0] == found[1]
        assert found[0]


def test_a_table_by_key_grows_from_a_first_batch_of_dead_letters(
    spark: Any, cluster: Ours, name: str, tmp_path: Path
) -> None:
    """Before, the run ended: 'spec.table.key: there is no column id'."""
    create(cluster, name)
    table = {"mode": "upsert", "key": ["id"], "partitionBy": ["country"]}
    given = document(
        cluster, name, tmp_path / "t", "delta", value={"format": "json", "evolve": "additive"}, table=table
    )
    for sent in ([b"no object", b"{}"], [b'{"id": 1, "country": "de"}'], [b'{"id": 1, "country": "fr"}', b"[]"]):
        send(cluster, name, sent)
        runner.Runner(table_spec.parse(given), SparkEngine(spark)).run(once=True)
    assert [(row["id"], row["country"]) for row in rows(tmp_path / "t", "delta")] == [(1, "fr")]
    found = sorted(str(row["code"]) for row in rows(f"{tmp_path}/t_dead_letters", "delta"))
    assert found == ["json.object", "json.syntax", "partition.unknown"]


def test_a_task_that_spark_runs_twice_leaves_no_file(spark: Any, cluster: Ours, name: str, tmp_path: Path) -> None:
    """Speculation and lost executors cause this: the files of one attempt are committed, the other files removed."""
    create(cluster, name, 2)
    produced(cluster, name, 50)

    class Twice(SparkEngine):
        def run(self, job: Job, ranges: Sequence[Range]) -> list[Result]:
            super().run(job, ranges)
            return super().run(job, ranges)

    given = table_spec.parse(document(cluster, name, tmp_path / "t", "parquet"))
    assert runner.Runner(given, Twice(spark)).run(once=True) == 50
    assert Counter(row["offset"] for row in rows(tmp_path / "t", "parquet")) == Counter(range(50))
    assert written_files(given) == runner.open_table(given).files()


def test_an_attempt_that_writes_after_its_batch_leaves_no_file(cluster: Ours, name: str, tmp_path: Path) -> None:
    """Spark ends the slower attempt of a speculated task, and does not wait for its end."""
    create(cluster, name, 2)
    produced(cluster, name, 50)
    given = table_spec.parse(document(cluster, name, tmp_path / "t", "parquet"))
    begun: list[tuple[Job, Sequence[Range]]] = []

    class Remembers(InlineEngine):
        def run(self, job: Job, ranges: Sequence[Range]) -> list[Result]:
            begun.append((job, ranges))
            return super().run(job, ranges)

    def late(_: runner.Progress) -> None:
        InlineEngine().run(*begun[-1])

    assert runner.Runner(given, Remembers(), report=late).run(once=True) == 50
    assert written_files(given) == runner.open_table(given).files()
