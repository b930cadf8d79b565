"""Writers of `format("kraft")` for Spark: batches and micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kraft_pipeline.sinks.options import SinkOptions
from kraft_pipeline.sinks.rows import RowWriter
from kraft_protocol.client.cluster import Cluster


@dataclass
class Written(WriterCommitMessage):
    """Number of rows that a task wrote; all in-sync replicas have acknowledged them."""

    rows: int


def write(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write all rows of a task and wait for acknowledgements. Runs on an executor."""
    with Cluster(options.settings) as cluster:
        writer = RowWriter(cluster, options)
        for batch in batches:
            writer.write(batch)
        writer.close()
        return Written(writer.rows)


class KraftWriter(DataSourceArrowWriter):
    """Writes a batch. Raises ValueError for mode("overwrite"), because topics cannot be overwritten."""

    def __init__(self, options: SinkOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise ValueError('topics cannot be overwritten: write with mode("append")')
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task, on an executor; returns how many were acknowledged."""
        return write(self._options, iterator)


class KraftStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. Raises ValueError for outputMode("complete")."""

    def __init__(self, options: SinkOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise ValueError('topics cannot be overwritten: write with outputMode("append")')
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task, on an executor; returns how many were acknowledged."""
        return write(self._options, iterator)
