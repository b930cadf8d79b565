"""`format("kraft")` for Spark: planning on the driver, fetching and decoding on the executors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
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

from kraft_pipeline.client import Cluster, DataLossError, fetch_range
from kraft_pipeline.client.fetch import Range
from kraft_pipeline.codec import Decoder
from kraft_pipeline.sinks.kraft import KraftStreamWriter, KraftWriter
from kraft_pipeline.sinks.options import parse_sink
from kraft_pipeline.sources import offsets, planning
from kraft_pipeline.sources.options import Options, columns_of, parse

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


def register(spark: SparkSession) -> None:
    """Make `format("kraft")` known to a session."""
    spark.dataSource.register(KraftDataSource)


class KraftDataSource(DataSource):
    """Topics of a cluster that speaks Kafka's protocol."""

    @classmethod
    def name(cls) -> str:
        return "kraft"

    def schema(self) -> str:
        return ", ".join(f"{name} {DDL[name]}" for name in columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return KraftReader(parse(self.options, streaming=False), tuple(schema.names))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return KraftStreamReader(parse(self.options, streaming=True), tuple(schema.names))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return KraftWriter(parse_sink(self.options, schema.names), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return KraftStreamWriter(parse_sink(self.options, schema.names), overwrite=overwrite)


class RangePartition(InputPartition):
    """One task: a range of offsets of one partition."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(tuple(wanted))
        self.wanted = wanted


def read_range(options: Options, columns: Sequence[str], wanted: Range) -> Iterator[pa.RecordBatch]:
    """On an executor: the records of one range as columns."""
    decoder = Decoder(wanted.topic, wanted.partition, columns)
    with Cluster(options.settings) as cluster:
        for chunk in fetch_range(
            cluster,
            wanted,
            committed=options.committed,
            max_bytes=options.fetch_bytes,
            fail_on_data_loss=options.fail_on_data_loss,
        ):
            yield from decoder.decode(chunk.records, chunk.offset, wanted.end, chunk.aborted)


def plan(cluster: Cluster, options: Options, start: offsets.Offsets, end: offsets.Offsets) -> list[RangePartition]:
    """The tasks between two sets of offsets. Raises DataLossError where a partition ends before its start."""
    ranges = []
    for (topic, partition), last in sorted(end.items()):
        first = start[topic, partition]
        if first > last and options.fail_on_data_loss:
            raise DataLossError(
                f"{topic}-{partition} ends at offset {last} now, {first} was to be read next: records were lost, or "
                "the topic is another one of the same name (failOnDataLoss=false goes on)"
            )
        ranges.append(Range(topic, cluster.topic(topic).id, partition, first, last))
    pieces = planning.split(
        ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition
    )
    return [RangePartition(piece) for piece in pieces]


class KraftReader(DataSourceReader):
    """A batch: what lies between two offsets of each partition."""

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self._options, self._columns = options, columns

    def partitions(self) -> Sequence[InputPartition]:
        with Cluster(self._options.settings) as cluster:
            start = offsets.starting(cluster, self._options)
            return plan(cluster, self._options, start, offsets.ending(cluster, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return read_range(self._options, self._columns, partition.wanted)


class KraftStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches. Spark keeps one on the driver for a query's life, and makes others on executors for `read`."""

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self._options, self._columns = options, columns
        self._until: offsets.Offsets | None = None
        self._waiting_since: float | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        with Cluster(self._options.settings) as cluster:
            return planning.to_json(offsets.starting(cluster, self._options))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_offsets_per_trigger:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with Cluster(self._options.settings) as cluster:
            self._until = offsets.latest(cluster, self._options)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next micro-batch goes; `start` when it is to wait for more."""
        with Cluster(self._options.settings) as cluster:
            end = offsets.latest(cluster, self._options) if self._until is None else dict(self._until)
            begin = self._begin(cluster, planning.from_json(start), end)
        if not isinstance(limit, ReadAllAvailable):
            if self._until is None and self._waits(begin, end):
                return start
            if self._options.max_offsets_per_trigger:
                end = planning.limited(begin, end, self._options.max_offsets_per_trigger)
        return planning.to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        with Cluster(self._options.settings) as cluster:
            return planning.to_json(offsets.latest(cluster, self._options))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        last = planning.from_json(end)
        with Cluster(self._options.settings) as cluster:
            first = self._begin(cluster, planning.from_json(start), last)
            return plan(cluster, self._options, first, last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return read_range(self._options, self._columns, partition.wanted)

    def _begin(self, cluster: Cluster, start: offsets.Offsets, end: offsets.Offsets) -> offsets.Offsets:
        """`start`, and the beginning of partitions that came since. Raises DataLossError for those that went."""
        gone = sorted(set(start) - set(end))
        if gone and self._options.fail_on_data_loss:
            raise DataLossError(
                f"{gone[0][0]}-{gone[0][1]} is gone, with records that may not have been read "
                "(failOnDataLoss=false goes on without it)"
            )
        new = [key for key in end if key not in start]
        return {**start, **offsets.earliest(cluster, new)}

    def _waits(self, begin: offsets.Offsets, end: offsets.Offsets) -> bool:
        """Whether there are too few records yet for a micro-batch, and it has not waited for too long."""
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
