"""Judge producers' acknowledgements and consumers' reads against the final content of the logs.

A record is identified by its value, which must be unique in the run. `Sent.sequence` is its position among the records
that its producer sent to the partition. A record with unknown outcome (a timeout, a closed connection) may be in the
log or not.

The laws, by the name that a finding carries:

- `lost`: acknowledged, but not in the final log.
- `moved`: acknowledged at one offset, found at another.
- `phantom`: in the log or read by a consumer, but never sent, or refused for good.
- `duplicate`: more than once in the log (checked for idempotent producers only, KIP-98), unless its client did that.
- `reordered`: two records of one producer in the opposite order of their sending (idempotent producers only).
- `unstable`: an offset showed two values to consumers, or a value that differs from the final log.
- `skipped`: a consumer passed over a record that the final log holds.
- `backwards`: a consumer received offsets that do not grow within one assignment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

Partition = tuple[str, int]


class RecordOutcome(StrEnum):
    """The outcome of a record, as its producer knows it."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """An error after which the record is certainly in no log."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Sent:
    """One record that a producer sent; `offset` is the acknowledged offset, -1 without an acknowledgement."""

    producer: str
    partition: Partition
    sequence: int
    value: str
    outcome: RecordOutcome
    offset: int = -1
    idempotent: bool = True


@dataclass(frozen=True, slots=True)
class Read:
    """Records in the order in which a consumer received them during one assignment of one partition."""

    consumer: str
    partition: Partition
    records: Sequence[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class HistoryFinding:
    """A broken law: its name, the partition, and a description of what happened."""

    law: str
    partition: Partition
    text: str

    def __str__(self) -> str:
        return f"{self.law}: {self.partition[0]}-{self.partition[1]}: {self.text}"


@dataclass
class Verdict:
    """Numbers of judged records and reads, and the findings."""

    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    read: int = 0
    repeated_by_client: int = 0
    """Records that are more than once in the log by their client's fault."""
    findings: list[HistoryFinding] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether the history breaks no law."""
        return not self.findings

    def count(self, law: str) -> int:
        """The number of findings for a law."""
        return sum(1 for finding in self.findings if finding.law == law)


def judge(
    sent: Iterable[Sent],
    reads: Iterable[Read],
    final: Mapping[Partition, Sequence[tuple[int, str]]],
    has_repeated: Callable[[Sent, Sequence[int]], bool] = lambda _record, _offsets: False,
) -> Verdict:
    """`final` holds every log, read from its start to its end after all faults are over, as (offset, value) pairs.

    `has_repeated`: whether the client of a record is the cause of its being at several offsets.
    A partition that was sent to or read from, but is not in `final`, counts as empty. Raises ValueError if two sends
    have the same value: this history cannot be judged.
    """
    verdict = Verdict()
    by_partition: dict[Partition, list[Sent]] = defaultdict(list)
    for record in sent:
        by_partition[record.partition].append(record)
        name = record.outcome.value
        setattr(verdict, name, getattr(verdict, name) + 1)
    read_of: dict[Partition, list[Read]] = defaultdict(list)
    for read in reads:
        read_of[read.partition].append(read)
        verdict.read += len(read.records)
    for partition in sorted({*by_partition, *read_of, *final}):
        log = _Log(partition, by_partition[partition], final.get(partition, ()), verdict.findings)
        verdict.repeated_by_client += log.judge_sends(has_repeated)
        log.judge_order()
        for read in read_of[partition]:
            log.judge_read(read)
    return verdict


class _Log:
    """The state of one partition during the judgement."""

    def __init__(
        self,
        partition: Partition,
        sent: Sequence[Sent],
        final: Sequence[tuple[int, str]],
        findings: list[HistoryFinding],
    ) -> None:
        self.partition = partition
        self.sent = {record.value: record for record in sent}
        if len(self.sent) != len(sent):
            raise ValueError(f"values sent to {partition[0]}-{partition[1]} are not unique")
        self.offsets: dict[str, list[int]] = defaultdict(list)
        self.values: dict[int, str] = {}
        for offset, value in final:
            self.offsets[value].append(offset)
            self.values[offset] = value
        self.final = [offset for offset, _ in final]
        self.seen = dict(self.values)
        self.findings = findings

    def _found(self, law: str, text: str) -> None:
        self.findings.append(HistoryFinding(law, self.partition, text))

    def judge_sends(self, has_repeated: Callable[[Sent, Sequence[int]], bool]) -> int:
        """Returns the number of records that their clients have repeated."""
        repeated = 0
        for value, record in self.sent.items():
            offsets = self.offsets.get(value, [])
            if record.outcome is RecordOutcome.ACKNOWLEDGED:
                if not offsets:
                    self._found("lost", f"{value!r} of {record.producer} was acknowledged at offset {record.offset}")
                elif record.offset >= 0 and record.offset not in offsets:
                    self._found("moved", f"{value!r} was acknowledged at offset {record.offset}, is at {offsets}")
            if len(offsets) > 1 and record.idempotent:
                if has_repeated(record, offsets):
                    repeated += 1
                    continue
                self._found("duplicate", f"{value!r} of {record.producer} at offsets {offsets}")
        for value, offsets in self.offsets.items():
            self._judge_origin(value, f"in the log at offset {offsets[0]}")
        return repeated

    def _judge_origin(self, value: str, where: str) -> None:
        record = self.sent.get(value)
        if record is None:
            self._found("phantom", f"{value!r} {where} was never sent")
        elif record.outcome is RecordOutcome.REFUSED:
            self._found("phantom", f"{value!r} {where} was refused to {record.producer}")

    def judge_order(self) -> None:
        last: dict[str, Sent] = {}
        for offset in self.final:
            record = self.sent.get(self.values[offset])
            if record is None or not record.idempotent or self.offsets[record.value][0] != offset:
                continue
            before = last.get(record.producer)
            if before is not None and before.sequence > record.sequence:
                self._found(
                    "reordered",
                    f"{record.value!r} (sent {record.sequence}. by {record.producer}) follows {before.value!r} (sent "
                    f"{before.sequence}.) at offset {offset}",
                )
            last[record.producer] = record

    def judge_read(self, read: Read) -> None:
        position = -1
        for offset, value in read.records:
            if position >= 0 and offset <= position:
                self._found("backwards", f"{read.consumer} received offset {offset} after {position}")
            elif position >= 0:
                self._judge_gap(read.consumer, position, offset)
            position = offset
            known = self.seen.setdefault(offset, value)
            if known != value:
                self._found("unstable", f"offset {offset} was {known!r} and, to {read.consumer}, {value!r}")
            if value not in self.offsets:
                self._judge_origin(value, f"read by {read.consumer} at offset {offset}")

    def _judge_gap(self, consumer: str, position: int, offset: int) -> None:
        for between in range(position + 1, offset):
            if between in self.values:
                self._found("skipped", f"{consumer} went from offset {position} to {offset} past {between}")


__all__ = ["HistoryFinding", "Partition", "Read", "RecordOutcome", "Sent", "Verdict", "judge"]
