"""Fetches with look-ups outside memory: lanes read, then the look-ups are repeated."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest

from kraft_node.base.env import ColdRead
from kraft_node.broker.fetch import waiting
from kraft_node.broker.fetch.session import ROWS
from kraft_node.broker.fetch.waiting import COLD_ROUNDS_MAX
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import stored
from tests.unit.broker.fetching.test_fetching import Rig, rows
from tests.unit.broker.fetching.test_large_fetches import Large
from tests.unit.broker.memory import MemoryLog
from tests.unit.broker.world import topic_id, topic_records


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.commit(topic_records("a", 1, 3))
    return rig


def answer(rig: Rig) -> Any:
    rig.loop.run()
    (found,) = rig.client.answers
    return found


@pytest.mark.parametrize("max_wait_ms", [0, 500])
def test_a_cold_fetch_is_answered_once_lanes_have_read(rig: Rig, max_wait_ms: int) -> None:
    size = rig.append("a")
    rig.logs["a", 0].cold_reads = 3
    assert rig.fetch(("a", 0, 0), max_wait_ms=max_wait_ms) is None
    assert len(rows(answer(rig))["a", 0].records) == size
    assert rig.logs["a", 0].cold_reads == 0
    assert not rig.fetches.waiting


def test_records_that_are_read_again_count_once(rig: Rig) -> None:
    sizes = [rig.append("a", 0), rig.append("a", 1)]
    rig.logs["a", 1].cold_reads = 2
    rig.fetch(("a", 0, 0), ("a", 1, 0))
    assert [len(row.records) for row in rows(answer(rig)).values()] == sizes
    assert [rig.replicas.leader("a", index).bytes_out for index in (0, 1)] == sizes


def test_a_cold_fetch_waits_for_more_records_afterwards(rig: Rig) -> None:
    size = rig.append("a")
    rig.logs["a", 0].cold_reads = 1
    assert rig.fetch(("a", 0, 0), min_bytes=2 * size) is None
    rig.loop.run(100)
    assert not rig.client.answers
    rig.append("a")
    assert len(rows(answer(rig))["a", 0].records) == 2 * size


def test_a_cold_fetch_is_answered_after_its_time(rig: Rig) -> None:
    rig.append("a")
    rig.logs["a", 0].cold_reads = 1
    assert rig.fetch(("a", 0, 0), min_bytes=1 << 20) is None
    rig.loop.run(499)
    assert not rig.client.answers
    rig.loop.run(1)
    assert rows(answer(rig))["a", 0].records


def test_a_late_fetch_is_answered_without_what_lanes_still_read(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated clusters (seed 60005 of `whole` with rare paths): one partition after another was not in memory, so
    followers got nothing at all before their requests timed out."""
    reading: list[Callable[[], None]] = []
    monkeypatch.setattr(waiting, "bring_in", lambda _disk, _background, _cold, done: reading.append(done))
    sizes = [rig.append("a", 0), rig.append("a", 1)]
    rig.logs["a", 1].cold_reads = 2
    assert rig.fetch(("a", 0, 0), ("a", 1, 0), session_epoch=0) is None
    rig.loop.run(499)
    assert not rig.client.answers
    rig.loop.run(1)
    first = answer(rig)
    found = rows(first)
    assert len(found["a", 0].records) == sizes[0]
    assert (found["a", 1].error_code, found["a", 1].records) == (ErrorCode.NONE, b"")
    assert found["a", 1].high_watermark == rig.replicas.leader("a", 1).log.high_watermark
    assert [rig.replicas.leader("a", index).bytes_out for index in (0, 1)] == [sizes[0], 0]
    for done in reading:
        done()
    rig.loop.run()
    assert len(rig.client.answers) == 1
    assert not rig.fetches.waiting
    again = rig.fetch(("a", 0, 1), session_id=first.session_id, session_epoch=1)
    assert len(rows(again)["a", 1].records) == sizes[1]


def test_a_late_fetch_without_any_record_waits_for_the_lanes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    reading: list[Callable[[], None]] = []
    monkeypatch.setattr(waiting, "bring_in", lambda _disk, _background, _cold, done: reading.append(done))
    size = rig.append("a", 1)
    rig.logs["a", 1].cold_reads = 2
    assert rig.fetch(("a", 0, 0), ("a", 1, 0)) is None
    rig.loop.run(1000)
    assert not rig.client.answers
    assert len(reading) == 1, "the same data is not read twice at the same time"
    reading[0]()
    assert len(rows(answer(rig))["a", 1].records) == size


def test_a_partition_deleted_during_a_cold_read_is_not_answered_from_it(rig: Rig) -> None:
    rig.append("a")
    rig.logs["a", 0].cold_reads = 1
    assert rig.fetch(("a", 0, 0)) is None
    rig.commit([stored.RemoveTopicRecord(topic_id=topic_id(1))])
    row = rows(answer(rig))["a", 0]
    assert (row.error_code, row.records) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b"")


def test_a_newer_request_of_the_session_ends_a_cold_fetch(rig: Rig) -> None:
    first = rig.fetch(("a", 0, 0), session_epoch=0, max_wait_ms=0)
    assert first.session_id
    rig.append("a")
    rig.logs["a", 0].cold_reads = 1
    assert rig.fetch(session_id=first.session_id, session_epoch=1) is None
    assert rig.fetch(session_id=first.session_id, session_epoch=2).session_id == first.session_id
    assert answer(rig).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_fetch_waits_for_the_disk_after_several_cold_rounds(rig: Rig) -> None:
    rig.append("a")
    rig.logs["a", 0].cold_reads = 10 * COLD_ROUNDS_MAX
    assert rig.fetch(("a", 0, 0)) is None
    assert rows(answer(rig))["a", 0].records
    assert rig.logs["a", 0].cold_reads == 9 * COLD_ROUNDS_MAX


def test_a_cold_fetch_keeps_no_file_open(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """If compaction replaced the segment, its space stayed in use until the fetch ended."""
    files: list[weakref.ref[Any]] = []

    def read(*_given: Any, **_how: Any) -> None:
        file = MemoryLog("any", None)  # type: ignore[arg-type]
        files.append(weakref.ref(file))
        raise ColdRead("/d/a-0/00000000000000000000.log", 0, 1)

    rig.append("a")
    monkeypatch.setattr(MemoryLog, "read", read)
    assert rig.fetch(("a", 0, 0)) is None
    assert [file() for file in files] == [None]


@pytest.mark.parametrize("max_wait_ms", [0, 500])
def test_a_large_fetch_continues_after_lanes_have_read(max_wait_ms: int) -> None:
    rig = Large()
    sizes = {index: rig.append("a", index) for index in (0, ROWS, 3 * ROWS)}
    rig.logs["a", ROWS].cold_reads = rig.logs["a", 3 * ROWS].cold_reads = 2
    assert rig.ask(max_wait_ms=max_wait_ms) is None
    found = rig.answer()
    assert {index: len(row.records) for (_, index), row in rows(found).items() if row.records} == sizes
    assert {index: rig.replicas.leader("a", index).bytes_out for index in sizes} == sizes
    assert not rig.fetches.waiting


def test_a_large_fetch_without_a_client_ends_while_lanes_read() -> None:
    rig = Large()
    rig.append("a", 0)
    rig.logs["a", 0].cold_reads = 1
    assert rig.ask() is None
    rig.client.closed = True
    rig.loop.run(1000)
    assert not rig.fetches.waiting
