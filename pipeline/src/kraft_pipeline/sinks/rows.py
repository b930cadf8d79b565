"""Converts rows in Arrow columns to a producer's batches, by topic and partition."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_pipeline.codec.arrays import fixed
from kraft_pipeline.codec.decode import HEADER_TYPE
from kraft_pipeline.codec.encode import encode
from kraft_pipeline.codec.partitioning import of_keys
from kraft_pipeline.codec.varints import Ints
from kraft_pipeline.sinks.options import SinkOptions
from kraft_protocol.client.cluster import Cluster
from kraft_protocol.client.idempotence import ProducerSequence
from kraft_protocol.client.produce import Producer
from kraft_protocol.client.transactions import ClientTransaction

WAITING_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of queued batches from which a task flushes: some windows of requests."""


class RowWriter:
    """Writes Arrow batches; call `close` at the end. Methods raise ValueError for rows that cannot be records."""

    def __init__(self, cluster: Cluster, options: SinkOptions, transaction: ClientTransaction | None = None) -> None:
        self._cluster, self._options, self._is_transactional = cluster, options, transaction is not None
        self._producer = Producer(cluster, timeout_ms=options.timeout_ms, transaction=transaction)
        self._identities: dict[tuple[str, int], ProducerSequence] = {}
        self._turn = time.time_ns() >> 10  # tasks begin at different partitions
        self.rows = 0
        self.topics = set[str]()
        """The topics that rows went to."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Queue the rows. They may be sent later; `close` waits for them."""
        if not rows.num_rows:
            return
        self._turn += 1
        columns = {name: rows.column(name) for name in rows.schema.names}
        keys, values = _binary(columns.get("key"), rows.num_rows), _binary(columns["value"], rows.num_rows)
        headers = columns.get("headers")
        headers = None if headers is None else headers.cast(HEADER_TYPE)
        for topic, places in self._by_topic(columns.get("topic")):
            self.topics.add(topic)
            numbers = self._partitions(topic, columns.get("partition"), keys, places)
            for number, some in _groups(numbers, places):
                taken = [_taken(column, some) for column in (keys, values, headers)]
                self._encode(topic, number, *taken)
        self.rows += rows.num_rows
        if self._producer.waiting_bytes > WAITING_BYTES_MAX:
            self._producer.flush()

    def close(self) -> None:
        """Wait until all rows are acknowledged. Raises as `Producer.flush`."""
        self._producer.flush()

    def _encode(self, topic: str, number: int, keys: pa.Array, values: pa.Array, headers: pa.Array | None) -> None:
        first = self._identities.get((topic, number)) or ProducerSequence(self._producer.id, self._producer.epoch, 0)
        # All records of an Arrow batch get the current time.
        now = np.full(len(values), time.time_ns() // 1_000_000, np.int64)
        options = self._options
        for batch in encode(
            keys,
            values,
            now,
            headers,
            codec=options.codec,
            batch_bytes=options.batch_bytes,
            identity=first,
            transactional=self._is_transactional,
        ):
            self._producer.add(topic, number, batch.data)
        self._identities[topic, number] = first.after(len(values))

    def _by_topic(self, topics: pa.Array | None) -> Iterator[tuple[str, Ints | None]]:
        """Yield each topic with the indexes of its rows; None means all rows."""
        if self._options.topic is not None or topics is None:
            yield self._options.topic or "", None
            return
        if topics.null_count:
            raise ValueError("a row has no topic: its column is null and the option topic is not set")
        found = topics.dictionary_encode()
        codes = found.indices.to_numpy()
        names = found.dictionary.to_pylist()
        for code, name in enumerate(names):
            yield name, (np.flatnonzero(codes == code) if len(names) > 1 else None)

    def _partitions(self, topic: str, given: pa.Array | None, keys: pa.Array, places: Ints | None) -> Ints:
        """The partition of each row of a topic."""
        there = self._cluster.ensure_topic(topic).partitions
        mine = _taken(keys, places)
        numbers = of_keys(mine, len(there), self._turn % len(there))
        if given is not None:
            stated = _taken(given, places)
            wanted = stated.cast(pa.int64())
            numbers = pc.coalesce(wanted, fixed(pa.int64(), numbers)).to_numpy(zero_copy_only=False)
            if numbers.min() < 0 or numbers.max() >= len(there):
                wrong = numbers[(numbers < 0) | (numbers >= len(there))][0]
                raise ValueError(f"a row for partition {wrong}: topic {topic} has {len(there)}")
        return numbers


def _groups(numbers: Ints, places: Ints | None) -> Iterator[tuple[int, Ints | None]]:
    """Yield each partition with the indexes of its rows in order; None means all rows."""
    first = int(numbers[0])
    if np.all(numbers == first):
        yield first, places
        return
    order = np.argsort(numbers, kind="stable")
    found, begins = np.unique(numbers[order], return_index=True)
    for number, some in zip(found.tolist(), np.split(order, begins[1:]), strict=True):
        yield number, some if places is None else places[some]


def _taken(column: Any, places: Ints | None) -> Any:
    return column if column is None or places is None else column.take(fixed(pa.int64(), places))


def _binary(column: pa.Array | None, count: int) -> pa.Array:
    if column is None:
        return pa.nulls(count, pa.binary())
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return column.cast(pa.binary())
    if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
        return column.cast(pa.large_binary()).cast(pa.binary())
    raise ValueError(f"keys and values must be string or binary, not {column.type}")
