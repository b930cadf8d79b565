"""Writing `format("kraft")` from Spark: batches and micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kraft_pipeline.client import Cluster
from kraft_pipeline.sinks.options import SinkOptions
from kraft_pipeline.sinks.rows import RowWriter


@dataclass
class Written(WriterCommitMessage):
    """What a task has written, acknowledged by all in-sync replicas."""

    rows: int


def write(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """On an executor: all rows of a task."""
    with Cluster(options.settings) as cluster:
        writer = RowWriter(cluster, options)
        for batch in batches:
            writer.write(batch)
        writer.close()
        return Written(writer.rows)


class KraftWriter(DataSourceArrowWriter):
    """A batch. A topic cannot be overwritten, so only mode("append") is meant."""

    def __init__(self, options: SinkOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise ValueError('topics cannot be overwritten: write with mode("append")')
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task, on an executor; returns how many were acknowledged."""
        return write(self._options, iterator)


class KraftStreamWriter(DataSourceStreamArrowWriter):
    """Micro-batches, appended."""

    def __init__(self, options: SinkOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise ValueError('topics cannot be overwritten: write with outputMode("append")')
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task, on an executor; returns how many were acknowledged."""
        return write(self._options, iterator)
