"""Which repeated records are librdkafka's own doing: the only repetitions that a round forgives.

A broker recognizes a repeated batch within one epoch of its producer. librdkafka bumps the epoch of all partitions if
one of them gets OUT_OF_ORDER_SEQUENCE_NUMBER or loses a record. It then sends everything unacknowledged again, also
batches that may be stored (its issue 4953). `test_bumped_epochs.py` shows this with Apache Kafka. A repetition is
librdkafka's doing if

- the copies have the same producer id, and each copy has a newer epoch than the copy before;
- each batch that was sent again had got an answer that leaves open whether it is stored, or no answer;
- no bump came from a wrong OUT_OF_ORDER_SEQUENCE_NUMBER: the batch before the refused one had been refused, too.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from kraft_node.testing.histories.logs import Partition, Sent
from kraft_protocol.records.batch import iter_headers

FAILED = re.compile(
    r" (\S+) \[(\d+)\]: MessageSet with \d+ message\(s\) \(MsgId \d+, BaseSeq (\d+)\) "
    r"encountered error: (.*) \(actions (.*)\)"
)
SKIPPED = re.compile(
    r"ProduceRequest for (\S+) \[(\d+)\] .* skipped sequence numbers .* base seq \d+ > next seq (\d+)\)"
)
BUMPED = re.compile(r"bumped epoch to PID\{Id:(\d+),Epoch:(\d+)\}")

POSSIBLY_STORED = "MsgPossiblyPersisted"
"""The action of librdkafka for an error that leaves open whether the batch is stored."""
DEPOSED = "Broker: Not leader for partition"
"""librdkafka takes it for a refusal. A leader that is deposed while it waits for replicas has appended, though."""
OUT_OF_ORDER = "Broker: Broker received an out of order sequence number"
"""librdkafka notes a doubt at first, and takes it for a refusal afterwards."""
STORED = ("Broker: Request timed out", "Broker: Message(s) written to insufficient number of in-sync replicas")
"""Answers that a leader gives after the append."""


class Batch(NamedTuple):
    """The name that a producer gives to a batch."""

    partition: Partition
    epoch: int
    base_sequence: int


class Copy(NamedTuple):
    """Where a copy of a record is, and in which batch."""

    offset: int
    producer_id: int
    batch: Batch


class ProducerLog(logging.Handler):
    """What one librdkafka producer logs about its batches with `debug=eos,msg`."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[Batch, list[tuple[str, str]]] = defaultdict(list)
        """The error and librdkafka's actions, for each attempt that failed."""
        self.unfounded: list[str] = []
        """Refusals of a batch as out of order, although the batch before it is in the log."""
        self.epoch = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if match := FAILED.search(text):
            topic, index, sequence, error, actions = match.groups()
            self.errors[Batch((topic, int(index)), self.epoch, int(sequence))].append((error, actions))
        elif match := SKIPPED.search(text):
            topic, index, sequence = match.groups()
            before = self.errors.get(Batch((topic, int(index)), self.epoch, int(sequence)), [])
            if not before or before[-1][0].startswith(STORED):
                self.unfounded.append(text)
        elif match := BUMPED.search(text):
            self.epoch = int(match[2])

    def may_be_stored(self, batch: Batch) -> bool:
        """Whether an attempt to send the batch has ended without certainty that it is not stored."""
        return any(
            error == DEPOSED or (POSSIBLY_STORED in actions and error != OUT_OF_ORDER)
            for error, actions in self.errors.get(batch, ())
        )

    def has_repeated(self, copies: Sequence[Copy]) -> bool:
        """Whether the copies of a record, by offset, are this producer's own doing."""
        return (
            not self.unfounded
            and len({copy.producer_id for copy in copies}) == 1
            and all(one.batch.epoch < two.batch.epoch for one, two in pairwise(copies))
            and all(self.may_be_stored(copy.batch) for copy in copies[:-1])
        )


class Forgiveness:
    """Decides about the repeated records of a round; the logs of its producers by name, and the final batches."""

    def __init__(
        self, logs: Mapping[str, ProducerLog], batches: Mapping[Partition, Sequence[tuple[range, int, Batch]]]
    ) -> None:
        self._logs = logs
        self._batches = batches

    def __call__(self, record: Sent, offsets: Sequence[int]) -> bool:
        copies = [
            Copy(offset, producer_id, batch)
            for offset in offsets
            for span, producer_id, batch in self._batches.get(record.partition, ())
            if offset in span
        ]
        return len(copies) == len(offsets) and self._logs[record.producer].has_repeated(copies)


def producer_logger(handler: ProducerLog) -> logging.Logger:
    """A logger for librdkafka that reaches only this handler."""
    logger = logging.Logger("librdkafka", logging.DEBUG)
    logger.addHandler(handler)
    return logger


def batches_of(data: Path, topic: str, partitions: int) -> dict[Partition, list[tuple[range, int, Batch]]]:
    """Offsets, producer id and name of each batch in a replica's files."""
    found: dict[Partition, list[tuple[range, int, Batch]]] = {}
    for index in range(partitions):
        rows = found.setdefault((topic, index), [])
        for path in sorted((data / f"{topic}-{index}").glob("*.log")):
            for header in iter_headers(path.read_bytes()):
                name = Batch((topic, index), header.producer_epoch, header.base_sequence)
                rows.append((range(header.base_offset, header.last_offset + 1), header.producer_id, name))
    return found
