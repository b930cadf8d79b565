"""The content of a log on its disk, read without the log's memory."""

from __future__ import annotations

from typing import NamedTuple

from kraft_node.log.log import Log
from kraft_protocol.records.batch import BatchHeader, iter_records
from kraft_protocol.records.control import ControlType, iter_control_records
from tests.unit.log.world import whole_headers


class Written(NamedTuple):
    """One record as it was appended."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    is_transactional: bool


class Segment(NamedTuple):
    """The content of a segment's file."""

    base: int
    end: int
    """Where the next segment begins, or the log ends."""
    data: bytes
    batches: list[BatchHeader]

    @property
    def last_end(self) -> int:
        """The end of its last batch."""
        return int(self.batches[-1].next_offset) if self.batches else self.base


def segments_of(log: Log) -> list[Segment]:
    found = []
    for number, base in enumerate(log.segment_bases):
        segment = log.segments.at(number)
        data = segment.file().pread(0, segment.size)
        found.append(Segment(base, log.segment_end(number), data, whole_headers(data)))
    return found


def records_in(segments: list[Segment], start: int = 0) -> dict[int, Written]:
    """All records from `start` on except markers."""
    return {
        record.offset: Written(record.key, record.value, record.timestamp, header.is_transactional)
        for segment in segments
        for header in segment.batches
        if not header.is_control
        for record in iter_records(segment.data, header)
        if record.offset >= start
    }


def latest_of(records: dict[int, Written], without: set[int]) -> dict[bytes | None, tuple[int, Written]]:
    """The last record of each key, without those at some offsets."""
    return {record.key: (at, record) for at, record in sorted(records.items()) if at not in without}


class Ended(NamedTuple):
    """A transaction that has ended."""

    offsets: frozenset[int]
    """Of its records; compaction may have removed some of them."""
    marker: int
    is_aborted: bool


def transactions_in(segments: list[Segment], producer_id: int) -> tuple[list[Ended], set[int]]:
    """The ended transactions of a producer and the offsets of its open one, by the batches on the disk."""
    ended: list[Ended] = []
    in_transaction: set[int] = set()
    for segment in segments:
        for header in segment.batches:
            if header.producer_id != producer_id or not header.is_transactional:
                continue
            if not header.is_control:
                in_transaction |= {record.offset for record in iter_records(segment.data, header)}
            for marker in iter_control_records(segment.data, header) if header.is_control else ():
                ended.append(Ended(frozenset(in_transaction), header.base_offset, marker.type == ControlType.ABORT))
                in_transaction = set()
    return ended, in_transaction


def check_transactions(log: Log, ended: list[Ended], segments: list[Segment], found: dict[int, Written]) -> None:
    """While records of an ended transaction exist, its marker does; an aborted transaction is in the index."""
    markers = {header.base_offset for each in segments for header in each.batches if header.is_control}
    firsts = [first for _, first in log.aborted_transactions(log.start_offset, log.end_offset)]
    for each in ended:
        left = each.offsets & found.keys()
        if left:
            assert each.marker in markers
            assert not each.is_aborted or any(first <= min(left) for first in firsts)


class State:
    """The state of a log that survives a stop."""

    def __init__(self, log: Log) -> None:
        segments = segments_of(log)
        self.start, self.end = log.start_offset, log.end_offset
        self.records = records_in(segments, log.start_offset)
        self.aborted = {
            each for each in log.aborted_transactions(log.start_offset, log.end_offset) if each[1] >= log.start_offset
        }
        self.producers = {
            each.producer_id: (each.producer_epoch, each.last_sequence, each.last_offset)
            for each in log.producers.active()
            if each.last_offset >= log.start_offset
        }
        ids = {header.producer_id for each in segments for header in each.batches if not header.is_control}
        self.producers_in_batches = {each: known for each, known in self.producers.items() if each in ids}
        self.open_transactions = {
            each.producer_id: each.current_txn_first_offset
            for each in log.producers.active()
            if each.current_txn_first_offset >= log.start_offset
        }
        self.gaps = {each.last_end for each in segments if each.last_end < each.end}
        """Ends of segments behind which offsets are missing, and of what comes before the last batch."""
        last = segments[-1].batches
        if last:
            self.gaps.add(last[-2].next_offset if len(last) > 1 else segments[-1].base)
