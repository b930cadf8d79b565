"""The ledger of transactions: what clients have sent, the answers to them, and what readers have received.

Clients write into it, `judge` reads it in the end. Laws that one entry alone can break are checked at once:

- `zombie`   nothing is accepted that a producer sent after a newer producer of its transactional id had begun
- `fence`    a pair of producer id and epoch belongs to one producer; epochs of a transactional id grow
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker, Partition

Values = list[tuple[int, str]]
"""Offsets and values of records."""
GroupPartition = tuple[str, str, int]
"""Group, topic and partition of a committed offset."""


@dataclass(slots=True, eq=False)
class SentBatch:
    """A batch of a transaction, for one partition."""

    transaction: SentTransaction
    partition: Partition
    values: Sequence[str]
    raw: bytes
    key: bytes
    first_event: int = -1
    """When it was first sent."""
    offset: int = -1
    """The acknowledged offset of its first record."""


@dataclass(slots=True, eq=False)
class SentTransaction:
    """One transaction of one producer; `transactional_id` None: batches of an idempotent producer."""

    name: str
    transactional_id: str | None
    producer_id: int
    epoch: int
    batches: list[SentBatch] = field(default_factory=list)
    offsets: dict[GroupPartition, int] = field(default_factory=dict)
    """Offsets that it commits, as far as they were acknowledged."""
    commit_event: int = -1
    """When its commit was first requested."""
    outcome: bool | None = None
    """The acknowledged result: True if it is committed. None: not known."""


class ReadSpan(NamedTuple):
    """What a reader was given between two positions."""

    who: str
    is_committed: bool
    """Whether it reads only committed records."""
    partition: Partition
    start: int
    end: int
    values: Values


class _Begun(NamedTuple):
    """A producer got its id and epoch."""

    event: int
    who: str
    producer_id: int
    epoch: int


class Ledger:
    """All entries of one run."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.transactions: list[SentTransaction] = []
        self.sent: dict[str, SentBatch] = {}
        """By value."""
        self.spans: list[ReadSpan] = []
        self.read_to: dict[Partition, int] = {}
        """How far some reader has come."""
        self.starts: dict[Partition, int] = {}
        """The offsets up to which records may have been deleted."""
        self.found: dict[GroupPartition, set[int]] = defaultdict(set)
        """Committed offsets that clients have read."""
        self.version_asked_ms = float("-inf")
        """When another transaction.version was last requested."""
        self._begun: dict[str, list[_Begun]] = defaultdict(list)
        """By transactional id."""
        self._owners: dict[tuple[int, int], str] = {}
        """Producers by id and epoch."""
        self._requested: dict[int, int] = {}
        """By producer id of a transactional id: when a new producer last sent a request that was answered with it."""
        self._received: dict[int, int] = {}
        """By producer id of a transactional id: when a producer first received it."""

    @property
    def _event(self) -> int:
        return self.checker.world.events

    # -- producers

    def begun(
        self, who: str, transactional_id: str | None, producer_id: int, epoch: int, *, requested: int, first: bool
    ) -> None:
        """A producer got an id and an epoch; `first`: for its first time, so that earlier producers are fenced.

        `requested`: when the request was sent; the last attempt, which is the one that was answered.
        """
        owner = self._owners.setdefault((producer_id, epoch), who)
        if owner != who:
            self.checker.broken("fence", who, f"got producer id {producer_id} epoch {epoch}, which {owner} has")
        if transactional_id is None:
            return
        self._received.setdefault(producer_id, self._event)
        if not first:
            return
        self._requested[producer_id] = max(requested, self._requested.get(producer_id, -1))
        self._begun[transactional_id].append(_Begun(self._event, who, producer_id, epoch))

    def transaction(self, name: str, transactional_id: str | None, producer_id: int, epoch: int) -> SentTransaction:
        """A transaction begins."""
        made = SentTransaction(name, transactional_id, producer_id, epoch)
        self.transactions.append(made)
        return made

    def batch(
        self, transaction: SentTransaction, partition: Partition, values: Sequence[str], raw: bytes, key: bytes
    ) -> SentBatch:
        """A batch is about to be sent."""
        batch = SentBatch(transaction, partition, values, raw, key)
        transaction.batches.append(batch)
        for value in values:
            assert value not in self.sent, f"{value} is sent twice: the run cannot be judged"
            self.sent[value] = batch
        return batch

    def sending(self, batch: SentBatch) -> None:
        """The batch is sent, perhaps again."""
        if batch.first_event < 0:
            batch.first_event = self._event

    def acknowledged(self, batch: SentBatch, offset: int) -> None:
        """The batch is in the log from `offset` on."""
        batch.offset = offset
        self._check_fenced(batch.transaction, batch.first_event, f"appended its batch at {offset}", batch.partition)

    def offsets_accepted(self, transaction: SentTransaction, offsets: Mapping[GroupPartition, int], event: int) -> None:
        """The transaction commits these offsets; `event`: when the request was first sent."""
        transaction.offsets.update(offsets)
        self._check_fenced(transaction, event, "added offsets", next(iter(offsets))[0])

    def committing(self, transaction: SentTransaction) -> None:
        """The commit is requested, perhaps again."""
        if transaction.commit_event < 0:
            transaction.commit_event = self._event

    def ended(self, transaction: SentTransaction, *, commit: bool) -> None:
        """The result is acknowledged."""
        transaction.outcome = commit
        if commit:
            self._check_fenced(transaction, transaction.commit_event, "committed", transaction.name)

    def _check_fenced(self, transaction: SentTransaction, event: int, what: str, where: Partition | str) -> None:
        """Report a step that a producer began after a newer producer had got its epoch."""
        if transaction.transactional_id is None:
            return
        own = transaction.name.rpartition(":")[0]
        for newer in self._begun[transaction.transactional_id]:
            if newer.producer_id == transaction.producer_id:
                is_newer = newer.epoch > transaction.epoch
            else:
                is_newer = self._replaces(newer.producer_id, transaction.producer_id)
            if is_newer and newer.event < event and newer.who != own:
                text = f"{transaction.name} of epoch {transaction.epoch} {what} after {newer.who} had {newer.epoch}"
                self.checker.broken("zombie", where, text)
                return

    def _replaces(self, producer_id: int, former: int) -> bool:
        """Whether a transactional id certainly got `producer_id` after `former`.

        A transactional id never returns to a former producer id. So one pair of requests proves the order of all: a new
        producer requested `producer_id` after some producer had received `former`. The order in which producers receive
        their ids proves nothing: a paused process may read an old answer after its successor began.
        """
        received = self._received.get(former)
        return received is not None and self._requested.get(producer_id, -1) >= received

    # -- readers

    def found_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """A client has read a group's committed offsets; 0: none."""
        for partition, offset in offsets.items():
            if offset > 0:
                self.found[group, *partition].add(offset)

    def read(self, span: ReadSpan, last_stable: int, high_watermark: int) -> None:
        """A reader has moved on in a partition; the two ends are those of the response."""
        self.checker.records_read += len(span.values)
        end = last_stable if span.is_committed else high_watermark
        if last_stable > high_watermark:
            text = f"{span.who} received the last stable offset {last_stable}, the high watermark is {high_watermark}"
            self.checker.broken("stable", span.partition, text)
        if span.end > end:
            kind = "last stable offset" if span.is_committed else "high watermark"
            self.checker.broken("beyond", span.partition, f"{span.who} received {span.end - 1}, the {kind} is {end}")
        self.spans.append(span)
        self.read_to[span.partition] = max(span.end, self.read_to.get(span.partition, 0))
