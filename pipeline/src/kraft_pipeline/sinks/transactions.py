"""Writes the rows of a task exactly once: in a transaction with a mark that says which rows they are.

A task has the transactional id `<kafka.transactional.id>-<number of the task>`. Its transaction has the rows, and
offsets of the consumer group of the same name: the marks of the micro-batch. If Spark runs a task or a micro-batch
again, the task finds a mark and writes nothing. The transactional id fences earlier attempts, so none of them can
commit after the marks were read.

Each topic with rows has a mark. Brokers delete the offsets of a deleted topic, so only the topic's own mark goes.

The number of a task must identify its rows. That is so if a query reads the same ranges of offsets again, and
partitions rows by their values. The mark has the number of rows; a repeated task with another number fails.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

import pyarrow as pa

from kraft_pipeline.sinks.options import SinkOptions
from kraft_pipeline.sinks.rows import RowWriter
from kraft_protocol.client.cluster import Cluster
from kraft_protocol.client.errors import BrokerError, ClientError
from kraft_protocol.client.transactions import FENCED, ClientTransaction, StoredOffset, stored_offsets

OTHER_S: Final = 60.0
"""Maximum seconds that a fenced attempt of a task waits for the attempt that has fenced it."""
POLL_S: Final = 0.5
LATER: Final = -1


class Unit(NamedTuple):
    """The rows of one task."""

    query: str
    """Id of the streaming query, which its checkpoint keeps, or of one execution of a batch query."""
    batch: int
    task: int


def write_once(cluster: Cluster, options: SinkOptions, batches: Iterator[pa.RecordBatch], unit: Unit) -> int:
    """Write the rows unless they are written already; returns their number.

    Raises ClientError, and ValueError if an earlier attempt wrote another number of rows.
    """
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return 0  # without a transaction: most tasks of a small batch have no rows
    name = f"{options.transactional_id}-{unit.task}"
    transaction = ClientTransaction(cluster, name, timeout_ms=options.transaction_ms)
    written = _written(cluster, name, unit)
    if written is not None:
        return _same(unit, written, first.num_rows + sum(batch.num_rows for batch in batches))
    try:
        writer = RowWriter(cluster, options, transaction)
        writer.write(first)
        for batch in batches:
            writer.write(batch)
        writer.close()
        mark = json.dumps({"query": unit.query, "batch": unit.batch, "rows": writer.rows})
        transaction.store(name, [StoredOffset((topic, 0), unit.batch + 1, mark) for topic in sorted(writer.topics)])
        transaction.commit()
    except BrokerError as e:
        if e.code in FENCED:
            return _of_other(cluster, name, unit, e)
        _abort(transaction)
        raise
    except BaseException:
        _abort(transaction)
        raise
    return writer.rows


def _abort(transaction: ClientTransaction) -> None:
    """Abort so that readers need not wait; otherwise the next attempt or the coordinator's timeout aborts."""
    with suppress(ClientError):
        transaction.abort()


def _written(cluster: Cluster, name: str, unit: Unit) -> int | None:
    """The number of rows that an earlier attempt committed; LATER after a later batch, None if no attempt did."""
    marks = [mark for mark in map(_mark, stored_offsets(cluster, name)) if mark is not None and mark[0] == unit.query]
    if any(batch > unit.batch for _, batch, _ in marks):
        return LATER  # a process that outlived its query, or a checkpoint that was restored
    return next((rows for _, batch, rows in marks if batch == unit.batch), None)


def _mark(stored: StoredOffset) -> tuple[str, int, int] | None:
    """Query, batch and rows of a mark; None if another program committed the offset."""
    try:
        mark = json.loads(stored.metadata)
        return str(mark["query"]), int(mark["batch"]), int(mark["rows"])
    except (ValueError, TypeError, KeyError):
        return None


def _same(unit: Unit, written: int, rows: int) -> int:
    """Check that an earlier attempt wrote the same number of rows. Returns the number; raises ValueError."""
    if written not in {rows, LATER}:
        raise ValueError(
            f"batch {unit.batch}, task {unit.task}: an earlier attempt wrote {written} rows, this attempt has {rows}. "
            "The query partitions its rows differently now, so rows could be lost or repeated. "
            "Another kafka.transactional.id writes the batch again"
        )
    return rows


def _of_other(cluster: Cluster, name: str, unit: Unit, fenced: BrokerError) -> int:
    """Wait until the attempt that has fenced this one commits the rows (speculation). Raises `fenced` without one."""
    until = time.monotonic() + min(OTHER_S, cluster.settings.retry_s)
    while time.monotonic() < until:
        written = _written(cluster, name, unit)
        if written is not None:
            return max(written, 0)
        time.sleep(POLL_S)
    raise fenced
