"""The laws of transactions, on the final logs and the ledger.

- `atomic`     a transaction is committed in all its partitions, or aborted in all; a committed one lacks nothing
- `outcome`    a transaction ends as the answer to its producer says; without a requested commit it is aborted
- `hanging`    every transaction has ended
- `zombie`     no record of a transaction follows its end, and none of an older epoch follows a newer epoch
- `lost`       an acknowledged batch is in the log at its offset
- `duplicate`, `reordered`, `phantom`   records are in the log once, in order, and were sent
- `isolation`  a reader of committed records gets each of them, once, and no other; one of all records gets all
- `latest`     readers of a compacted log find the last committed value of each key
- `copied`     the copies of committed transactions are the records before the group's offset, each once
- `offsets`    a group's offset is the one of its last committed transaction, and no client reads another one
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kraft_protocol.records.control import ControlType

if TYPE_CHECKING:
    from kraft_node.testing.checker import Partition
    from kraft_node.testing.transactions.ledger import GroupPartition, Ledger, SentBatch, SentTransaction

EXAMPLES: Final = 4
"""Records that a finding names."""


class LogEntry(NamedTuple):
    """A record of a final log, or a marker (`value` None)."""

    offset: int
    producer_id: int
    epoch: int
    is_transactional: bool
    marker: ControlType | None
    value: str | None


@dataclass
class FinalLog:
    """One partition in the end."""

    entries: list[LogEntry]
    """All of them, in order of their offsets."""
    start: int = 0
    is_compacted: bool = False
    visible: dict[int, str] = field(default_factory=dict)
    """By offset: the records that readers of committed records get."""
    all: dict[int, str] = field(default_factory=dict)


class Judge:
    """Judges one run."""

    def __init__(self, ledger: Ledger, logs: dict[Partition, FinalLog]) -> None:
        self._ledger = ledger
        self._checker = ledger.checker
        self._logs = logs
        self._results: dict[SentTransaction, set[bool]] = defaultdict(set)
        """By transaction: whether it is committed, in each partition that has records of it."""

    def judge(self) -> None:
        """Report what breaks a law."""
        for partition, log in self._logs.items():
            before = len(self._checker.findings)
            self._walk(partition, log)
            if len(self._checker.findings) > before:
                self._tell(partition, log)
        for transaction in self._ledger.transactions:
            self._judge_transaction(transaction)
        for partition, log in self._logs.items():
            self._judge_spans(partition, log)
            if log.is_compacted:
                self._judge_latest(partition, log)

    def _tell(self, partition: Partition, log: FinalLog) -> None:
        """Write a log into the story."""
        for entry in log.entries:
            what = entry.value if entry.marker is None else f"--- {entry.marker.name.lower()}"
            who = f"producer {entry.producer_id} epoch {entry.epoch}"
            self._checker.world.note(f"{partition[0]}-{partition[1]}", f"{entry.offset}: {who} {what}")

    # -- logs

    def _walk(self, partition: Partition, log: FinalLog) -> None:
        """Follow the log from its start: which records do markers commit?"""
        open_records: dict[int, list[LogEntry]] = defaultdict(list)
        epochs: dict[int, int] = {}
        finished: set[SentTransaction] = set()
        seen: dict[str, int] = {}
        places: dict[str, int] = {}
        for entry in log.entries:
            if entry.producer_id >= 0:
                if entry.epoch < epochs.get(entry.producer_id, -1):
                    text = f"epoch {entry.epoch} of producer {entry.producer_id} at {entry.offset} follows a newer one"
                    self._checker.broken("zombie", partition, text)
                epochs[entry.producer_id] = entry.epoch
            if entry.marker is not None:
                records = open_records.pop(entry.producer_id, [])
                finished |= self._end(log, records, commit=entry.marker is ControlType.COMMIT)
                continue
            value = entry.value
            assert value is not None
            log.all[entry.offset] = value
            batch = self._ledger.sent.get(value)
            if batch is None or batch.partition != partition:
                self._checker.broken("phantom", partition, f"{value!r} at offset {entry.offset} was never sent here")
                continue
            if value in seen:
                text = f"{value!r} is at offsets {seen[value]} and {entry.offset}"
                self._checker.broken("duplicate", partition, text)
            seen[value] = entry.offset
            name, _, place = value.partition("<")[0].rpartition(":")
            if int(place) < places.get(name, -1):
                self._checker.broken("reordered", partition, f"{value!r} at offset {entry.offset} comes late")
            places[name] = int(place)
            if batch.transaction in finished:
                text = f"{value!r} at offset {entry.offset} follows the end of its transaction"
                self._checker.broken("zombie", partition, text)
            if entry.is_transactional:
                open_records[entry.producer_id].append(entry)
            else:
                log.visible[entry.offset] = value
        for producer_id, records in open_records.items():
            text = f"producer {producer_id} has an open transaction from offset {records[0].offset} on"
            self._checker.broken("hanging", partition, text)

    def _end(self, log: FinalLog, records: list[LogEntry], *, commit: bool) -> set[SentTransaction]:
        ended = set()
        for entry in records:
            assert entry.value is not None
            batch = self._ledger.sent.get(entry.value)
            if batch is not None:
                self._results[batch.transaction].add(commit)
                ended.add(batch.transaction)
            if commit:
                log.visible[entry.offset] = entry.value
        return ended

    # -- transactions

    def _judge_transaction(self, transaction: SentTransaction) -> None:
        results, name = self._results[transaction], transaction.name
        logs = self._logs
        for batch in transaction.batches:
            log = logs.get(batch.partition)
            if log is None or log.is_compacted or batch.offset < log.start:
                continue
            found = [log.all.get(batch.offset + place) for place in range(len(batch.values))]
            if found != list(batch.values):
                text = f"{batch.values[0]!r} was acknowledged at offset {batch.offset}, there is {found}"
                self._checker.broken("lost", batch.partition, text)
        if transaction.transactional_id is None:
            return
        if len(results) > 1:
            self._checker.broken("atomic", name, "is committed in some partitions and aborted in others")
        committed = True in results
        if committed and transaction.commit_event < 0:
            self._checker.broken("outcome", name, "is committed, its producer never asked for that")
        if transaction.outcome is not None and results and transaction.outcome not in results:
            text = (
                f"the answer to its producer was {'commit' if transaction.outcome else 'abort'}, markers say the other"
            )
            self._checker.broken("outcome", name, text)
        if committed or transaction.outcome:
            lacking = [
                batch for batch in transaction.batches
                if (log := logs.get(batch.partition)) is not None and not log.is_compacted
                and batch.offset >= log.start and log.visible.get(batch.offset) != batch.values[0]
            ]  # fmt: skip
            if lacking:
                text = f"is committed without {lacking[0].values[0]!r} in {lacking[0].partition}"
                self._checker.broken("atomic", name, text)

    def is_committed(self, transaction: SentTransaction) -> bool | None:
        """The result of a transaction; None if nobody knows it."""
        results = self._results[transaction]
        return next(iter(results)) if results else transaction.outcome

    # -- readers

    def _judge_spans(self, partition: Partition, log: FinalLog) -> None:
        for span in self._ledger.spans:
            if span.partition != partition:
                continue
            expected = log.visible if span.is_committed else log.all
            start = max(span.start, log.start)
            wanted = [(offset, value) for offset, value in sorted(expected.items()) if start <= offset < span.end]
            if not log.is_compacted:
                values = [(offset, value) for offset, value in span.values if offset >= start]
                if wanted != values:
                    self._report(span.who, partition, wanted, values)
                continue
            got = dict(span.values)
            aborted = [
                (offset, value) for offset, value in span.values
                if span.is_committed and self.is_committed(self._ledger.sent[value].transaction) is False
            ]  # fmt: skip
            lacking = [(offset, value) for offset, value in wanted if got.get(offset) != value]
            if aborted or any(self._must_stay(log, offset, value) for offset, value in lacking):
                self._report(span.who, partition, wanted, span.values)

    def _must_stay(self, log: FinalLog, offset: int, value: str) -> bool:
        """Whether no replica may have removed a record that the final leader still has.

        Each replica compacts at its own time. A reader of another replica lacks aborted records, and records whose key
        has a later value.
        """
        if offset not in log.visible:
            return False
        key = self._ledger.sent[value].key
        return all(self._ledger.sent[later].key != key for at, later in log.visible.items() if at > offset)

    def _report(self, who: str, partition: Partition, wanted: object, got: object) -> None:
        missing = sorted(set(wanted) - set(got))[:EXAMPLES]  # type: ignore[call-overload]
        extra = sorted(set(got) - set(wanted))[:EXAMPLES]  # type: ignore[call-overload]
        self._checker.broken("isolation", partition, f"{who} did not get {missing}, and got {extra}")

    def _judge_latest(self, partition: Partition, log: FinalLog) -> None:
        latest: dict[bytes, SentBatch] = {}
        for batch in self._ledger.sent.values():
            is_lasting = batch.transaction.transactional_id is None or self.is_committed(batch.transaction)
            if batch.partition == partition and batch.offset >= 0 and is_lasting:
                latest[batch.key] = max(batch, latest.get(batch.key, batch), key=lambda one: one.offset)
        for key, batch in latest.items():
            offset = batch.offset + len(batch.values) - 1
            if log.visible.get(offset) != batch.values[-1]:
                later = max(
                    (at for at, value in log.visible.items() if self._ledger.sent[value].key == key), default=-1
                )
                if later <= offset:
                    text = f"{key!r} has {batch.values[-1]!r} at {offset}, readers find its last value at {later}"
                    self._checker.broken("latest", partition, text)

    # -- copies

    def judge_copies(self, group: str, offsets: dict[Partition, int]) -> None:
        """Judge an application that copies, by the committed offsets of its group in the end."""
        transactions = [
            transaction for transaction in self._ledger.transactions
            if any(key[0] == group for key in transaction.offsets)
        ]  # fmt: skip
        copies: dict[tuple[Partition, int], list[str]] = defaultdict(list)
        for log in self._logs.values():
            for value in log.visible.values():
                _, found, source = value.partition("<")
                if found and source.startswith(f"{group}/"):
                    _, topic, index, place, _ = source.split("/", 4)
                    copies[(topic, int(index)), int(place)].append(value)
        for partition, end in offsets.items():
            visible = self._logs[partition].visible
            for offset, value in visible.items():
                number = len(copies.pop((partition, offset), []))
                if number != (1 if offset < end else 0):
                    text = f"{value!r} at offset {offset} has {number} copies of {group}, whose offset is {end}"
                    self._checker.broken("copied", partition, text)
            self._judge_offset((group, *partition), end, transactions)
        for (partition, offset), values in copies.items():
            self._checker.broken("copied", partition, f"nothing readable is at {offset}, but {values[0]!r} is a copy")

    def _judge_offset(self, key: GroupPartition, end: int, transactions: list[SentTransaction]) -> None:
        partition = key[1:]
        committed = [txn.offsets[key] for txn in transactions if key in txn.offsets and self.is_committed(txn)]
        unknown = [txn.offsets[key] for txn in transactions if key in txn.offsets and self.is_committed(txn) is None]
        last = max(committed, default=-1)
        if end < last or (end not in (last, *unknown)):
            text = f"{key[0]} is at {end}, its committed transactions say {last}, others {unknown}"
            self._checker.broken("offsets", partition, text)
        strange = self._ledger.found[key] - {*committed, *unknown}
        if strange:
            text = f"clients have read {sorted(strange)} of {key[0]}, which no transaction has committed"
            self._checker.broken("offsets", partition, text)
