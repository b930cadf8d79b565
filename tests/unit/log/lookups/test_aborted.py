"""The aborted transactions of a read: which they are, and how many entries of the index are read for them."""

from __future__ import annotations

import random

import pytest

from kraft_node.log import names
from kraft_node.log.log import Log
from kraft_node.log.segments import txn_index
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import build_batch
from kraft_protocol.records.control import build_marker
from tests.unit.log.world import DIR, NOW, LogWorld

ABORTED = 700


def end(log: Log, producer_id: int) -> None:
    marker = build_marker(commit=False, producer_id=producer_id, producer_epoch=0, coordinator_epoch=1, timestamp=NOW)
    log.append_as_leader(marker, 0, NOW, internal=True)


def begin(log: Log, producer_id: int) -> None:
    data = build_batch(
        [(b"k", b"v" * 3000)],
        timestamp=NOW,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    log.append_as_leader(data, 0, NOW)


def with_aborted(world: LogWorld, count: int) -> Log:
    """A log with transactions of which up to five are open at a time."""
    log, rng, opened = world.open({"segment.bytes": "1048576"}), random.Random(1), list[int]()
    for producer_id in range(count):
        begin(log, producer_id)
        opened.append(producer_id)
        while len(opened) > rng.randrange(5):
            end(log, opened.pop(rng.randrange(len(opened))))
    for producer_id in opened:
        end(log, producer_id)
    log.high_watermark = log.end_offset
    return log


def test_reads_get_the_transactions_that_overlap_them() -> None:
    world = LogWorld()
    log = with_aborted(world, ABORTED)
    assert len(log.txn_bases) > 1
    paths = [f"{DIR}/t-0/{base:020d}{names.TXN_INDEX}" for base in log.txn_bases]
    entries = [txn for path in paths for txn in txn_index.read(world.disk, path)]
    assert len(entries) == ABORTED
    rng = random.Random(2)
    for _ in range(300):
        start = rng.randrange(log.end_offset)
        stop = start + rng.choice([1, 5, 100, 2000])
        found = log.aborted_transactions(start, stop)
        wanted = [(t.producer_id, t.first_offset) for t in entries if t.last_offset >= start and t.first_offset < stop]
        assert found == wanted


def test_a_read_at_the_end_reads_few_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that fills slowly has many aborted transactions, and consumers fetch its end all the time."""
    log = LogWorld().open()
    for producer_id in range(ABORTED):
        begin(log, producer_id)
        end(log, producer_id)
    log.high_watermark = log.end_offset
    seen = 0
    real = txn_index.decode

    def counted(data: bytes) -> list[txn_index.AbortedTxn]:
        nonlocal seen
        entries = real(data)
        seen += len(entries)
        return entries

    monkeypatch.setattr(txn_index, "decode", counted)
    assert log.aborted_transactions(log.end_offset - 2, log.end_offset) == [(ABORTED - 1, 2 * ABORTED - 2)]
    assert seen < ABORTED // 4


def test_a_directory_that_dies_after_the_read_is_reported_as_such() -> None:
    """The offset index was read outside of the boundary: UNKNOWN_SERVER_ERROR, and the directory lived on.

    Seed 9100170 of the scenario `transactions` found it.
    """
    world = LogWorld()
    log = with_aborted(world, ABORTED)
    found = log.read(0, 100_000)
    aborted = log.aborted_within(found)
    assert aborted == log.aborted_transactions(0, found.next_offset) != []
    world.disk.dead = DIR
    with pytest.raises(KafkaError) as raised:
        log.aborted_within(found)
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.dir.failed is not None


def test_a_read_without_aborted_transactions_reads_no_index() -> None:
    world = LogWorld()
    log = world.open()
    begin(log, 1)
    log.high_watermark = log.end_offset
    found, before = log.read(0, 100_000), world.disk.spent.operations
    assert log.aborted_within(found) == []
    assert world.disk.spent.operations == before
