"""The judge of transactions knows what compaction may take away from a reader, and what it may not."""

from __future__ import annotations

import pytest

from kraft_node.testing.checker import Checker
from kraft_node.testing.transactions.judge import FinalLog, Judge, LogEntry
from kraft_node.testing.transactions.ledger import Ledger, ReadSpan, SentBatch, SentTransaction
from kraft_node.testing.world import World
from kraft_protocol.records.control import ControlType

P = ("k", 0)
END = 7
LOG = [("x:1:0", b"1"), ("x:2:0", b"2"), ("x:3:0", b"1"), ("x:4:0", b"3"), ("x:5:0", b"4")]
"""Values and keys. `x:4` is aborted; key 1 has a later value, key 2 has none."""


def laws(*read: int, committed: bool = True, start: int = 0, end: int = END) -> list[str]:
    """What the judge finds if a reader got the records at these offsets, and no other, from `start` to `end`."""
    checker = Checker(World(1))
    ledger = Ledger(checker)
    entries = []
    for number, (value, key) in enumerate(LOG):
        is_transactional = number == 3
        name = value.rpartition(":")[0]
        transaction = SentTransaction(name, "t" if is_transactional else None, 1, 0)
        ledger.transactions.append(transaction)
        batch = SentBatch(transaction, P, [value], b"", key, 0, number)
        transaction.batches.append(batch)
        ledger.sent[value] = batch
        entries.append(LogEntry(number, 1, 0, is_transactional, None, value))
    entries.append(LogEntry(len(LOG), 1, 0, True, ControlType.ABORT, None))
    values = [(offset, LOG[offset][0]) for offset in read]
    ledger.spans.append(ReadSpan("reader", committed, P, start, end, values))
    Judge(ledger, {P: FinalLog(entries, is_compacted=True)}).judge()
    return [finding.law for finding in checker.findings]


def test_a_reader_of_the_whole_log_breaks_no_law() -> None:
    assert laws(0, 1, 2, 4) == []
    assert laws(0, 1, 2, 3, 4, committed=False) == []


@pytest.mark.parametrize("committed", [True, False])
def test_a_replica_may_lack_replaced_and_aborted_records(committed: bool) -> None:
    assert laws(1, 2, 4, committed=committed) == []


@pytest.mark.parametrize("lacking", [1, 2, 4])
@pytest.mark.parametrize("committed", [True, False])
def test_no_replica_may_lack_the_last_value_of_a_key(lacking: int, committed: bool) -> None:
    assert laws(*({1, 2, 4} - {lacking}), committed=committed) == ["isolation"]


def test_a_reader_lacks_nothing_beyond_its_end() -> None:
    assert laws(0, 1, end=2) == []
    assert laws(2, 4, start=2) == []
    assert laws(2, start=2) == ["isolation"]


def test_a_reader_of_committed_records_gets_no_aborted_record() -> None:
    assert laws(0, 1, 2, 3, 4) == ["isolation"]
