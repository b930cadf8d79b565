"""Engines that run tasks: on Spark's executors, or in this process."""

from __future__ import annotations

import base64
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import pyarrow as pa

from kraft_pipeline import pod
from kraft_pipeline.tables.engines.feeds import Writer, poll
from kraft_pipeline.tables.engines.tasks import Job, Result, run_task
from kraft_pipeline.tables.errors import SPARK, Failure, TaskError, failure_of, panics_explained
from kraft_pipeline.tables.specs.table_spec import EngineSpec, SpecError, TableSpec
from kraft_protocol.client.cluster import Cluster
from kraft_protocol.client.fetch import Range

if TYPE_CHECKING:
    from kraft_pipeline.tables.engines.transforms import Transform

T = TypeVar("T")
R = TypeVar("R")


COMMON: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Maintenance runs beside batches: the first job must not keep all cores until its end.
    "spark.scheduler.mode": "FAIR",
}
LOCAL: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
STREAMING: Final = "spark.kraft.table.streaming"
"""Setting of earlier releases, which did not use Structured Streaming unless it was `true`."""
BY_VALUES: Final = frozenset(
    {"PythonException", "ArithmeticException", "ArrayIndexOutOfBoundsException", "DateTimeException"}
    | {"NumberFormatException", "SparkRuntimeException"}
)
"""PySpark exceptions that an expression or a function of a transform raises. A retry raises them again."""
RAISED: Final = "spark.raised"
"""Failure code of these exceptions."""
PYTHON_MIB_MIN: Final = 256
"""Minimum MiB for Python per concurrent task."""


def settings(spec: EngineSpec) -> dict[str, str]:
    """Spark settings for a specification. Raises SpecError if the executors' memory is too small."""
    if spec.spark.get(STREAMING, "true") != "true":
        raise SpecError(f"spec.engine.spark.{STREAMING}: tables on Spark are streaming queries; remove the setting")
    if spec.mode == "local":
        return {**LOCAL, **pod.spark_settings()}
    python = spec.memory // (1 << 20) - pod.JAVA_MIB
    if python < PYTHON_MIB_MIN * spec.cores:
        least = pod.JAVA_MIB + PYTHON_MIB_MIN * spec.cores
        raise SpecError(f"spec.engine.memory: executors of {spec.cores} cores need at least {least}Mi")
    return {
        "spark.executor.instances": str(spec.executors),
        "spark.executor.cores": str(spec.cores),
        "spark.executor.memory": f"{pod.JAVA_MIB}m",
        "spark.executor.memoryOverhead": f"{python}m",
        # Batches are split by this number, possibly before the executors have started.
        "spark.default.parallelism": str(spec.executors * spec.cores),
    }


def _outcome(call: Callable[[T], R], work: T) -> R | Failure:
    """Run a task; returns its result, or its failure."""
    try:
        with panics_explained():
            return call(work)
    except Exception as e:
        return failure_of(e)


def _packed(number: int, outcome: Any) -> pa.RecordBatch:
    text = base64.b85encode(pickle.dumps(outcome)).decode()
    return pa.RecordBatch.from_pydict({"number": [number], "result": [text]})


class Engine(Protocol):
    """Runs the tasks of batches, `parallelism` of them at once."""

    parallelism: int
    outlives: bool
    """Whether attempts of tasks may run on after `run` has returned or failed."""

    def map(self, call: Callable[[T], R], work: Sequence[T]) -> list[R]:
        """Return the results of `call` in the order of `work`. Raises what `call` raised, or TaskError."""

    def run(self, job: Job, ranges: Sequence[Range]) -> list[Result]:
        """Run `run_task` for each range, and return the results in order. Raises the exception of a task, or
        TaskError."""

    def transform(self, spec: TableSpec) -> Transform | None:
        """The checked SELECT of the spec, or None without a SELECT. Raises SpecError."""

    def drive(self, writer: Writer, cluster: Cluster) -> None:
        """Pass batches to the writer until it stops, or with `once` until no records are left.

        Raises the exceptions of batches and of planning, possibly as TaskError.
        """

    def beside(self) -> AbstractContextManager[None]:
        """A context in which this thread's tasks share the cores fairly with batches."""

    def another(self) -> Engine:
        """An engine for another table beside this table, on the same Spark."""

    def close(self) -> None:
        """Stop the engine and free its resources."""


class InlineEngine:
    """Runs tasks one after another in this process, without Spark: for little data and for tests."""

    parallelism = 1
    outlives = False

    def map(self, call: Callable[[T], R], work: Sequence[T]) -> list[R]:
        """As `Engine.map`, one call at a time."""
        return [call(one) for one in work]

    def run(self, job: Job, ranges: Sequence[Range]) -> list[Result]:
        """As `Engine.run`, one range at a time."""
        return self.map(partial(run_task, job), ranges)

    def transform(self, spec: TableSpec) -> Transform | None:
        """As `Engine.transform`. Raises SpecError for a SELECT, which needs Spark."""
        if spec.transform:
            raise SpecError("spec.transform: SQL needs Spark; engine.mode inline runs without Spark")
        return None

    def drive(self, writer: Writer, cluster: Cluster) -> None:
        """As `Engine.drive`, in this thread."""
        poll(writer, cluster)

    def beside(self) -> AbstractContextManager[None]:
        """As `Engine.beside`; does nothing, because each thread runs its own tasks."""
        return nullcontext()

    def another(self) -> InlineEngine:
        """As `Engine.another`; returns itself, because it has no state."""
        return self

    def close(self) -> None:
        """Do nothing: the engine has no resources."""


class SparkEngine:
    """Runs tasks on the session's cluster; batches are micro-batches of a query of Structured Streaming."""

    outlives = True
    """Spark does not wait for attempts that it ends: the slower of two, and those of a job that has failed."""

    def __init__(self, spark: Any) -> None:
        self.session = spark
        self._ranges: Any = None
        """DataFrame of the current micro-batch's ranges; None outside `reading`."""
        self.parallelism = int(spark.sparkContext.defaultParallelism)

    @classmethod
    def start(cls, name: str, spec: EngineSpec) -> SparkEngine:
        """Start Spark on all cores of this machine, or on executors. Raises ImportError without PySpark, SpecError."""
        from pyspark.sql import SparkSession  # noqa: PLC0415 - only this engine needs it

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName(name)
        for key, value in {**COMMON, **settings(spec), **spec.spark}.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        engine = cls(session)
        if spec.mode != "local" and str(session.sparkContext.master).startswith("local"):
            engine.close()
            raise SpecError(f"spec.engine.mode: for {spec.mode}, Spark's configuration has to name a spark.master")
        return engine

    def transform(self, spec: TableSpec) -> Transform | None:
        """As `Engine.transform`."""
        if not spec.transform:
            return None
        from kraft_pipeline.tables.engines.transforms import Transform  # noqa: PLC0415 - PySpark's classes

        return Transform(spec, self)

    def drive(self, writer: Writer, cluster: Cluster) -> None:
        """As `Engine.drive`, by a query of Structured Streaming."""
        from kraft_pipeline.tables.engines.streaming import stream  # noqa: PLC0415 - PySpark's classes

        stream(self, writer, cluster)

    @contextmanager
    def reading(self, ranges: Any) -> Iterator[None]:
        """A context in which `run` takes its ranges from a micro-batch, the DataFrame `ranges`."""
        self._ranges = ranges
        try:
            yield
        finally:
            self._ranges = None

    def run(self, job: Job, ranges: Sequence[Range]) -> list[Result]:
        """As `Engine.run`: one task per range. Inside `reading` the tasks belong to the micro-batch."""
        if self._ranges is None:
            return self.map(partial(run_task, job), ranges)
        from kraft_pipeline.tables.engines.streaming import range_of  # noqa: PLC0415

        return self._results(self._ranges, lambda row: run_task(job, range_of(row)), len(ranges))

    def map(self, call: Callable[[T], R], work: Sequence[T]) -> list[R]:
        """As `Engine.map`: one task per item. Failures of Spark itself are TaskErrors, too."""
        if not work:
            return []
        rows = self.session.range(0, len(work), 1, len(work)).withColumnRenamed("id", "number")
        return self._results(rows, lambda row: call(work[row["number"]]), len(work))

    def written(self, frame: Any, call: Callable[[Iterator[pa.RecordBatch]], R]) -> list[R]:
        """Call `call` with the rows of each partition of a transform's DataFrame, and return the results.

        Raises TaskError.
        """

        def on_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield _packed(0, _outcome(call, batches))

        try:
            return [result for _, result in self._collected(frame, on_executor)]
        except TaskError as e:
            if e.failure.code != RAISED:
                raise
            raise TaskError(e.failure._replace(kind="data", message=f"spec.transform: {e.failure.message}")) from e

    def _results(self, tasks: Any, call: Callable[[dict[str, Any]], R], count: int) -> list[R]:
        """Return the results of `call` for each row, sorted by its number. Raises TaskError."""

        def on_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for row in batch.to_pylist():
                    yield _packed(row["number"], _outcome(call, row))

        found = dict(self._collected(tasks, on_executor))
        return [found[number] for number in range(count)]

    def _collected(self, frame: Any, on_executor: Callable[..., Any]) -> list[tuple[int, Any]]:
        """Return the results of tasks with their numbers. Raises TaskError."""
        try:
            rows = frame.mapInArrow(on_executor, "number long, result string").collect()
        except Exception as e:  # Spark itself failed: exceptions of our tasks are among the results
            raise TaskError(self.failure(e)) from e
        # Our own tasks have packed the results, on executors that run our code anyway.
        found = [(row["number"], pickle.loads(base64.b85decode(row["result"]))) for row in rows]  # noqa: S301
        failures = [outcome for _, outcome in found if isinstance(outcome, Failure)]
        if failures:  # report a permanent failure before retriable failures
            raise TaskError(min(failures, key=lambda failure: failure.retriable))
        return found

    def failure(self, error: Exception) -> Failure:
        """Classify an exception of Spark itself. Lost executors and workers are retriable.

        An ended JVM is not, nor an expression or a function of a transform that fails on a value.
        """
        from py4j.protocol import Py4JError  # noqa: PLC0415 - PySpark's
        from pyspark.errors import PySparkException  # noqa: PLC0415

        text = str(error).partition("\n")[0]
        if type(error).__name__ in BY_VALUES:
            lines = [line for line in str(error).splitlines() if line and not line[0].isspace()]
            text = lines[-1] if type(error).__name__ == "PythonException" else text
            return Failure(RAISED, "defect", False, text, str(error))
        if self.is_gone:
            return Failure("spark.ended", "environment", False, f"Spark has ended: {text}", str(error))
        if isinstance(error, Py4JError | PySparkException | OSError):
            return Failure(SPARK, "environment", True, text, str(error))
        return Failure(SPARK, "defect", False, text, str(error))

    @contextmanager
    def beside(self) -> Iterator[None]:
        """As `Engine.beside`, by a pool of Spark's fair scheduler."""
        context = self.session.sparkContext
        context.setLocalProperty("spark.scheduler.pool", "maintenance")
        try:
            yield
        finally:
            context.setLocalProperty("spark.scheduler.pool", None)

    @property
    def is_gone(self) -> bool:
        """Whether Spark has ended, so no batch can run in this process."""
        try:
            return bool(self.session.sparkContext._jsc.sc().isStopped())
        except Exception:  # the JVM does not answer
            return True

    def another(self) -> SparkEngine:
        """As `Engine.another`: on the same session, with ranges of its own."""
        return type(self)(self.session)

    def close(self) -> None:
        """Stop Spark unless it has already ended."""
        if not self.is_gone:
            self.session.stop()
