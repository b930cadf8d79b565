"""Writers of `format("kraft")` for Spark: batches and micro-batches."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kraft_pipeline.sinks.options import SinkOptions
from kraft_pipeline.sinks.rows import RowWriter
from kraft_pipeline.sinks.transactions import Unit, write_once
from kraft_protocol.client.cluster import Cluster


@dataclass
class WrittenRows(WriterCommitMessage):
    """Number of rows that a task wrote; all in-sync replicas have acknowledged them."""

    rows: int


def write(options: SinkOptions, batches: Iterator[pa.RecordBatch], run: str = "") -> WrittenRows:
    """Write all rows of a task and wait for acknowledgements. Runs on an executor. `run`: as in `unit`."""
    with Cluster(options.settings) as cluster:
        if options.transactional_id:
            return WrittenRows(write_once(cluster, options, batches, unit(run)))
        writer = RowWriter(cluster, options)
        for batch in batches:
            writer.write(batch)
        writer.close()
        return WrittenRows(writer.rows)


def unit(run: str) -> Unit:
    """The rows that the current task writes: of the query's micro-batch, or of the batch query `run`.

    Raises ValueError outside a streaming query without `run`.
    """
    context = TaskContext.get()
    if context is None:
        raise ValueError("option kafka.transactional.id: only Spark's tasks can write in transactions")
    if run:
        return Unit(run, 0, context.partitionId())
    query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
    if not query or batch is None:
        raise ValueError("option kafka.transactional.id: Spark does not report the query's id and its batch")
    return Unit(query, int(batch), context.partitionId())


class KraftWriter(DataSourceArrowWriter):
    """Writes a batch. Raises ValueError for mode("overwrite"), because topics cannot be overwritten."""

    def __init__(self, options: SinkOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise ValueError('topics cannot be overwritten: write with mode("append")')
        self._options, self._run = options, uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task, on an executor; returns how many were acknowledged."""
        return write(self._options, iterator, self._run)


class KraftStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. Raises ValueError for outputMode("complete")."""

    def __init__(self, options: SinkOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise ValueError('topics cannot be overwritten: write with outputMode("append")')
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task, on an executor; returns how many were acknowledged."""
        return write(self._options, iterator)
