"""Batches of a producer that its snapshot did not have, found in the log when they are sent again.

A snapshot (Kafka's .snapshot file) has only the last batch of each producer, and a client may send up to five again.
In Apache Kafka, such a batch is out of order after a restart of all replicas. librdkafka's producer ends at that.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final

from kraft_node.log.producers.producer_state import BATCHES_KEPT, BatchMetadata
from kraft_node.log.segments.scan import BadBatch, batches

if TYPE_CHECKING:
    from kraft_node.log.seams import TransactionalLog
    from kraft_protocol.records.batch import BatchHeader

RECORDS_MAX: Final = 1 << 20
"""A batch so many records before the known ones is not among the last five."""
OTHERS_MAX: Final = 2_000
"""Offsets of other producers between batches that a producer has in flight."""
HEADERS_MAX: Final = 5_000
"""Headers read for one producer: some ten milliseconds."""


def recall(log: TransactionalLog, header: BatchHeader) -> bool:
    """Find the batches before those that are known of a producer, if `header` may be one of them.

    Returns whether any was found. The log is read once for each producer that was loaded. Raises OSError,
    LogDirDamaged.
    """
    producer = log.producers.get(header.producer_id)
    if producer is None or producer.is_recalled or producer.producer_epoch != header.producer_epoch:
        return False
    missing = BATCHES_KEPT - len(producer.batches)
    records = producer.batches[0].first_sequence - header.base_sequence if producer.batches else 0
    if missing <= 0 or not 0 < records <= RECORDS_MAX:
        return False
    producer.is_recalled = True
    end = producer.first_offset
    headers = _headers(log, max(end - records - OTHERS_MAX, log.segments.first_base))
    found = [
        BatchMetadata(one.base_sequence, one.last_sequence, one.base_offset, one.last_offset, one.max_timestamp)
        for one in takewhile(lambda one: one.base_offset < end, islice(headers, HEADERS_MAX))
        if one.producer_id == header.producer_id and one.producer_epoch == header.producer_epoch and not one.is_control
    ]
    producer.batches[:0] = found[-missing:]
    return bool(found)


def _headers(log: TransactionalLog, start: int) -> Iterator[BatchHeader]:
    """The headers from the batch that holds `start`, or one before it, on. Raises OSError, LogDirDamaged."""
    for number in range(log.segment_number(start), len(log.segments)):
        segment = log.segments.at(number)
        position = segment.lookup(start) if start > segment.base and segment.size else 0
        try:
            yield from batches(segment.file(), position, segment.size)
        except BadBatch as e:
            raise segment.damaged(e, segment.size) from None
