"""`format("kraft")` for Spark: planning on the driver, fetching and decoding on the executors."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kraft_pipeline.codec import Decoder
from kraft_pipeline.sinks.kraft import KraftStreamWriter, KraftWriter
from kraft_pipeline.sinks.options import SinkOptions, check_kinds, parse_sink
from kraft_pipeline.sources import offsets, planning
from kraft_pipeline.sources.options import Options, columns_of, parse
from kraft_pipeline.sources.positions import Loss, Offsets, Position, followed, position, refuse, strangers
from kraft_pipeline.sources.security import REDACTED
from kraft_protocol.client.cluster import Cluster
from kraft_protocol.client.errors import BrokerError, ClientError, DataLossError
from kraft_protocol.client.fetch import Range, fetch_range
from kraft_protocol.client.groups import commit_offsets
from kraft_protocol.client.requests import NO_ID

DDL: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}

_REDACTION: Final = "spark.sql.redaction.options.regex"
_SPARKS_REDACTION: Final = "(?i)url"
_LOG: Final = logging.getLogger(__name__)


def register(spark: SparkSession) -> None:
    """Register `format("kraft")` in a session, and hide its secrets in Spark's plans."""
    spark.dataSource.register(KraftDataSource)
    if spark.conf.get(_REDACTION) == _SPARKS_REDACTION:
        spark.conf.set(_REDACTION, REDACTED)


class KraftDataSource(DataSource):
    """The data source `kraft`: topics of a Kafka-compatible cluster."""

    @classmethod
    def name(cls) -> str:
        """The name that `spark.read.format` takes."""
        return "kraft"

    def schema(self) -> str:
        """The columns of the rows as DDL. Raises ValueError for wrong options."""
        return ", ".join(f"{name} {DDL[name]}" for name in columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query."""
        return KraftReader(parse(self.options, streaming=False), tuple(schema.names))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader of a stream."""
        return KraftStreamReader(parse(self.options, streaming=True), tuple(schema.names))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch. Raises ValueError for mode("overwrite")."""
        return KraftWriter(self._sink(schema), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The writer of a stream. Raises ValueError for outputMode("complete")."""
        return KraftStreamWriter(self._sink(schema), overwrite=overwrite)

    def _sink(self, schema: StructType) -> SinkOptions:
        check_kinds({field.name: field.dataType.simpleString() for field in schema.fields})
        return parse_sink(self.options, schema.names)


class RangePartition(InputPartition):
    """One task: a range of offsets of one partition."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(tuple(wanted))
        self.wanted = wanted


def read(options: Options, columns: Sequence[str], partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Fetch and decode the records of one range. Runs on an executor. PySpark's own empty partition yields nothing."""
    if not isinstance(partition, RangePartition):
        return
    wanted = partition.wanted
    decoder = Decoder(wanted.topic, wanted.partition, columns)
    with Cluster(options.settings) as cluster:
        for chunk in fetch_range(
            cluster,
            wanted,
            committed=options.committed,
            max_bytes=options.fetch_bytes,
            fail_on_data_loss=options.fail_on_data_loss,
        ):
            yield from decoder.decode(chunk.records, chunk.offset, chunk.end, chunk.aborted)


def plan(options: Options, start: Offsets, end: Position) -> list[RangePartition]:
    """The tasks between two sets of offsets. Raises DataLossError if a partition ends before its start."""
    ranges = []
    for (topic, partition), last in sorted(end.offsets.items()):
        first = start[topic, partition]
        if first > last and options.fail_on_data_loss:
            raise DataLossError(
                f"{topic}-{partition} ends at offset {last} now, but the next read is at {first}: records were lost "
                "(failOnDataLoss=false continues)"
            )
        topic_id, epoch = bytes.fromhex(end.topics.get(topic, NO_ID.hex())), end.epochs.get((topic, partition), -1)
        ranges.append(Range(topic, topic_id, partition, first, last, epoch))
    pieces = planning.split(
        ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition
    )
    return [RangePartition(piece) for piece in pieces]


class KraftReader(DataSourceReader):
    """Reads a batch: the records between two offsets of each partition."""

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self._options, self._columns = options, columns

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the batch, planned on the driver from the current offsets."""
        with Cluster(self._options.settings) as cluster:
            start = offsets.starting(cluster, self._options)
            return plan(self._options, start, position(cluster, offsets.ending(cluster, self._options)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, on an executor."""
        return read(self._options, self._columns, partition)


class KraftStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches. Spark keeps one instance per query on the driver, and sends copies to executors."""

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self._options, self._columns = options, columns
        self._until: Position | None = None
        self._newest: Position | None = None
        """The ends of the topics when the last micro-batch was planned."""
        self._waiting_since: float | None = None
        self._committed: Offsets = {}
        self._reported: set[Loss] = set()
        self._open: Cluster | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None}

    @property
    def _cluster(self) -> Cluster:
        """The driver's connections, kept between micro-batches."""
        if self._open is None:
            self._open = Cluster(self._options.settings)
        return self._open

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The start of the stream. Spark calls this again until the first micro-batch is written."""
        begun = offsets.starting(self._cluster, self._options)
        if self._until is not None:
            self.prepareForTriggerAvailableNow()  # called again: the earlier end may be stale
        return replace(position(self._cluster, begun), begun=begun).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of a micro-batch: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger`, or all records."""
        if self._options.max_offsets_per_trigger:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query at the current offsets."""
        self._until = self._latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch; `start` if it waits for more records."""
        self.commit(start)  # all before `start` is written; Spark does not call `commit` after the last batch
        then = Position.from_json(start)
        self._newest = self._latest(then)
        end = self._newest if self._until is None else self._until
        begin = self._begin(then, end)
        # The first micro-batch stores its start, because "latest" would resolve differently later.
        if then.is_beginning:
            end = replace(end, begun=begin)
        if not isinstance(limit, ReadAllAvailable):
            if self._until is None and self._waits(begin, end.offsets):
                return start
            if self._options.max_offsets_per_trigger:
                limited = planning.limited(begin, end.offsets, self._options.max_offsets_per_trigger)
                end = replace(end, offsets=limited)
        if begin == end.offsets and then.offsets == end.offsets and not strangers(then, end):
            return start
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the topics for the query's progress, as `latestOffset` has just found them.

        Another look-up would wait for partitions without a leader, and end the query.
        """
        return None if self._newest is None else self._newest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch. Raises DataLossError if records between the two offsets are lost."""
        then, last = Position.from_json(start), Position.from_json(end)
        if last.begun:
            then = replace(then, offsets=last.begun)
        return plan(self._options, self._begin(then, last), last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, on an executor."""
        return read(self._options, self._columns, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the offsets of `end`, which Spark has written, to the consumer group, if the query has one."""
        group, done = self._options.commit_group, Position.from_json(end).offsets
        if group is None or done == self._committed:
            return
        try:
            commit_offsets(self._cluster, group, done)
            self._committed = done
        except BrokerError:
            raise
        except ClientError as e:  # the group is only for monitoring, so the query continues
            _LOG.warning("offsets are not committed: %s", e)

    def stop(self) -> None:
        """Close the connections at the end of the query."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _latest(self, then: Position | None = None) -> Position:
        return offsets.latest(self._cluster, self._options, then)

    def _begin(self, then: Position, end: Position) -> Offsets:
        """Valid offsets of `then`, and the first offsets of new partitions. Raises DataLossError for lost records."""
        good, new, lost = followed(self._cluster, then, end)
        if self._options.fail_on_data_loss:
            refuse(lost)
        for loss in set(lost) - self._reported:
            _LOG.warning("%s", loss)
        self._reported |= set(lost)
        return {**good, **offsets.earliest(self._cluster, new)}

    def _waits(self, begin: Offsets, end: Offsets) -> bool:
        """Whether to wait for more records: `minOffsetsPerTrigger` is not reached and `maxTriggerDelay` not over."""
        least = self._options.min_offsets_per_trigger
        if sum(max(0, last - begin[key]) for key, last in end.items()) >= least:
            self._waiting_since = None
            return False
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since < self._options.max_trigger_delay_s:
            return True
        self._waiting_since = None
        return False
