"""The batches of a KafkaTable as a query of Structured Streaming: `format("kraft-table")` to `foreachBatch`.

Spark requests the end of the next batch from the source. The source plans it from the table's state, which the table's
own transactions hold. The rows of a micro-batch are ranges of offsets, one Spark partition each. In `foreachBatch`,
tasks fetch, decode and write the ranges, and the driver commits the files. So Spark schedules, retries, speculates and
shows the tasks, but records pass neither through the JVM nor the driver. Each query has a new checkpoint that no other
query reads, so a checkpoint cannot be ahead of the table, behind it, or lost. See
docs/decisions/0015-tables-are-streaming-queries.md.

Spark runs the source's methods in a Python process of its own on the driver. Both processes share a folder per query:
`feed` has the offsets to read, `learned` the size of records, `behind` the number of records that the table lacks. If
planning fails, the failure is passed on as the end of a batch. So its class is not lost in the text of a Java
exception.
"""

from __future__ import annotations

import json
import os
import pickle
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from kraft_pipeline.sources.positions import Offsets
from kraft_pipeline.tables.engines.feeds import POLL_S, Asking, Feed, Writer, pieces
from kraft_pipeline.tables.engines.plans import Plan, Sizes, plan_of
from kraft_pipeline.tables.errors import Failure, TaskError, error_of, failure_of, panics_explained
from kraft_pipeline.tables.stores.opening import options_of
from kraft_protocol.client.cluster import Cluster
from kraft_protocol.client.fetch import Range

FORMAT: Final = "kraft-table"
STARTS: Final = 6
"""Attempts to start a query that writes a batch. Spark gives a Python process ten seconds to start, which may be too
short on a busy machine."""
COLUMNS: Final = "number int, topic string, topicId binary, partition int, first bigint, last bigint, epoch int"
_FAILURE: Final = "failure"
_PIECES: Final = "tasks"


class QueryEngine(Protocol):
    """What a query needs of its engine, which is `engine.SparkEngine`."""

    session: Any
    """The Spark session."""
    parallelism: int
    """Tasks that run at once."""

    @property
    def is_gone(self) -> bool:
        """Whether Spark has ended, so no batch can run in this process."""
        ...

    def failure(self, error: Exception) -> Failure:
        """Classify an exception of Spark itself."""
        ...

    def reading(self, ranges: Any) -> AbstractContextManager[None]:
        """A context in which the writer's tasks take their ranges from a micro-batch, the DataFrame `ranges`."""
        ...


def range_of(row: dict[str, Any]) -> Range:
    """Convert a row of the source (`COLUMNS`) to a range."""
    return Range(row["topic"], row["topicId"], row["partition"], row["first"], row["last"], row["epoch"])


class TableSource(DataSource):
    """Ranges of offsets for a KafkaTable; the option `feed` names the query's folder."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> str:
        """The columns of a range as DDL."""
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Raises ValueError: the format has no batch reader."""
        raise ValueError(f"format {FORMAT} is for streams; spark.readStream reads it")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """The planner of a query."""
        return TableReader(Path(self.options["feed"]))


class _Piece(InputPartition):
    """A range and its index in the batch."""

    def __init__(self, number: int, wanted: Range) -> None:
        super().__init__((number, *wanted))
        self.number, self.wanted = number, wanted


class TableReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver. Spark sends copies to executors, where `read` returns a range."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asking: tuple[Cluster, Asking, Sizes] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_asking": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The offset before the first batch."""
        return {}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Do nothing: the planner of a run with `once` knows its end."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """The next batch as a serialized plan, or a failure to plan; `start` without a batch."""
        try:
            with panics_explained():
                plan = self._next()
        except Exception as e:
            return {_FAILURE: failure_of(e)._asdict()}
        return start if plan is None else {**plan.to_json(), _PIECES: self._tasks()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        """The ranges of a batch."""
        if _PIECES not in end:  # a failure, or the initial offset, for which Spark may run an empty batch
            return []
        return [_Piece(number, wanted) for number, wanted in enumerate(pieces(plan_of(end), end[_PIECES]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The one row of a range."""
        if not isinstance(partition, _Piece):  # PySpark's placeholder for an empty batch
            return
        wanted = partition.wanted
        values = (partition.number, wanted.topic, wanted.topic_id, wanted.partition, wanted.start, wanted.end)
        names = [column.split()[0] for column in COLUMNS.split(", ")]
        kinds = {"int": pa.int32(), "string": pa.string(), "binary": pa.binary(), "bigint": pa.int64()}
        types = [kinds[column.split()[1]] for column in COLUMNS.split(", ")]
        given = zip((*values, wanted.epoch), types, strict=True)
        yield pa.RecordBatch.from_arrays([pa.array([value], kind) for value, kind in given], names)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the table has already committed."""

    def stop(self) -> None:
        """Close the connections at the end of the query."""
        if self._asking is not None:
            self._asking[0].close()
            self._asking = None

    def _next(self) -> Plan | None:
        if self._asking is None:
            feed = self._feed()[0]
            options = options_of(feed.spec)
            sizes = Sizes(feed.spec, options)
            self._asking = Cluster(options.settings), Asking(feed, sizes), sizes
        cluster, asking, sizes = self._asking
        with suppress(FileNotFoundError):
            sizes.learn(*json.loads((self._folder / "learned").read_text()))

        def behind(records: int, lags: Offsets) -> None:
            _put(self._folder / "behind", [records, [[*key, lag] for key, lag in lags.items()]])

        return asking.next(cluster, behind)

    def _tasks(self) -> int:
        return self._feed()[1]

    def _feed(self) -> tuple[Feed, int]:
        # This program's driver wrote the file to a folder that only its user can read.
        found: tuple[Feed, int] = pickle.loads((self._folder / "feed").read_bytes())  # noqa: S301
        return found


def _put(path: Path, value: Any) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(value))
    draft.replace(path)


def stream(engine: QueryEngine, writer: Writer, cluster: Cluster) -> None:
    """Run the query until the writer stops, or with `once` until no records are left.

    Raises the exception of a batch, and TaskError if Spark fails for good.
    """
    left = STARTS
    while left:
        with tempfile.TemporaryDirectory(prefix="kraft-table-") as folder:
            query = _Query(engine, writer, cluster, Path(folder))
            found = query.run()
        if found is None or writer.stopping:
            return
        left = STARTS if query.batches else left - 1
        if not (left and found.retriable):
            raise TaskError(found)


class _Query:
    """One query with its folder."""

    def __init__(self, engine: QueryEngine, writer: Writer, cluster: Cluster, folder: Path) -> None:
        self._engine, self._writer, self._cluster, self._folder = engine, writer, cluster, folder
        self._working = threading.Lock()
        self._raised: BaseException | None = None
        self.batches = 0

    def run(self) -> Failure | None:
        """Run until the end. Returns the failure of Spark, or None. Raises the exception of a batch."""
        failure: Failure | None = None
        query: Any = None
        try:
            query = self._start()
            self._watch(query)
        except (PySparkException, Py4JError, ConnectionError) as e:
            found = self._engine.failure(e)
            failure = found._replace(message=f"the query has failed: {found.message}")
        finally:
            if query is not None and not self._engine.is_gone and query.isActive:
                with self._working:  # wait for the current batch; `_batch` refuses the next batch
                    pass
                query.stop()
        if self._raised is not None and not (failure is not None and failure.code == "spark.ended"):
            raise self._raised
        return failure

    def _start(self) -> Any:
        feed = self._writer.feed
        (self._folder / "feed").write_bytes(pickle.dumps((feed, self._engine.parallelism)))
        self._engine.session.dataSource.register(TableSource)
        source = self._engine.session.readStream.format(FORMAT).option("feed", str(self._folder)).load()
        trigger: dict[str, Any] = {"availableNow": True}
        if not (feed.once or feed.backfill):
            trigger = {"processingTime": f"{int(1000 * POLL_S)} milliseconds"}
        return (
            source.writeStream.queryName(f"{feed.spec.label}-{os.path.basename(self._folder)}")
            .foreachBatch(self._batch)
            .option("checkpointLocation", (self._folder / "checkpoint").as_uri())
            .trigger(**trigger)
            .start()
        )

    def _watch(self, query: Any) -> None:
        while not query.awaitTermination(POLL_S):
            with suppress(FileNotFoundError):
                self._writer.behind, lags = json.loads((self._folder / "behind").read_text())
                self._writer.lags = {(topic, partition): lag for topic, partition, lag in lags}
            if self._writer.stopping or self._raised is not None:
                return
            if self._working.acquire(timeout=POLL_S):
                try:
                    self._writer.between()
                finally:
                    self._working.release()

    def _batch(self, rows: Any, number: int) -> None:
        """Write a batch and store its exception for `_watch`, because Python and Java would both log a trace."""
        with self._working:
            if self._writer.stopping or self._raised is not None:
                return  # Spark records the batch as written in the checkpoint, which is never read again
            try:
                self._write(rows, number)
            except BaseException as e:
                self._raised = e

    def _write(self, rows: Any, number: int) -> None:
        end = json.loads((self._folder / "checkpoint" / "offsets" / f"{number}").read_text().splitlines()[2])
        if _FAILURE in end:
            raise error_of(Failure(**end[_FAILURE]))
        if _PIECES not in end:
            return
        with self._engine.reading(rows):
            self._writer.batch(self._cluster, plan_of(end))
        self.batches += 1
        _put(self._folder / "learned", self._writer.sizes.learned)
