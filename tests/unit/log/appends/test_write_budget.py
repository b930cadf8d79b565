"""Appends wait for the disk before the kernel blocks the event loop (`log.waiting.write_budget`)."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from kraft_node.log.log import Log
from kraft_node.log.waiting.write_budget import OWN_BYTES, STEP_BYTES, AppendLater
from kraft_protocol.errors import ErrorCode, KafkaError
from tests.unit.log.world import NOW, LogWorld, batch

CEILING = 64_000
VALUE = bytes(1000)


def slow(ceiling: int | None = CEILING) -> tuple[LogWorld, Log]:
    """A log on a disk to which the kernel writes nothing by itself."""
    world = LogWorld()
    world.disk.memory.ceiling = ceiling
    world.disk.memory.rate = 0
    return world, world.open()


def fill(log: Log) -> int:
    """Append until an append must wait; returns how many did not."""
    for number in range(1000):
        try:
            log.append_as_leader(batch(VALUE), 0, NOW)
        except AppendLater:
            return number
    raise AssertionError("no append has had to wait")


def test_appends_wait_before_writes_would_block() -> None:
    world, log = slow()
    appended = fill(log)
    assert appended * len(VALUE) > CEILING // 2, "most of what the kernel takes at once is used"
    assert world.disk.memory.size <= CEILING
    assert not world.disk.spent.waits
    assert log.end_offset == appended


def test_a_waiting_append_continues_after_write_back() -> None:
    world, log = slow()
    fill(log)
    ready: list[int] = []
    log.dir.budget.wait(len(VALUE), lambda: ready.append(log.append_as_leader(batch(VALUE), 0, NOW).base_offset))
    assert not ready
    end = log.end_offset
    world.rest(1000)
    assert ready == [end]
    assert world.disk.memory.size < CEILING // 2


def test_appends_of_a_coordinator_do_not_wait() -> None:
    _, log = slow()
    appended = fill(log)
    assert log.append_as_leader(batch(VALUE), 0, NOW, internal=True).base_offset == appended


def test_waiting_appends_continue_in_order_as_far_as_room_permits() -> None:
    world, log = slow()
    fill(log)
    order: list[int] = []

    def append(number: int) -> None:
        try:
            log.append_as_leader(batch(VALUE), 0, NOW)
        except AppendLater as later:
            later.budget.wait(len(VALUE), lambda: append(number))
        else:
            order.append(number)

    for number in range(200):
        log.dir.budget.wait(len(VALUE), lambda number=number: append(number))  # type: ignore[misc]
    world.rest(60_000)
    assert sorted(order) == list(range(200))
    assert order[:20] == list(range(20))


def test_appends_continue_slowly_if_other_processes_filled_memory() -> None:
    world, log = slow()
    world.disk.memory.size = 2 * CEILING
    with pytest.raises(AppendLater) as caught:
        log.append_as_leader(batch(VALUE), 0, NOW)
    assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
    ready: list[int] = []
    caught.value.budget.wait(len(VALUE), lambda: ready.append(1))
    world.rest(1000)
    assert ready, "as much as the disk takes goes on"


def test_a_write_back_covers_closed_segments_that_no_flush_has_reached() -> None:
    """Cluster seed 1100425: their bytes counted as written, so as many again were appended to a full memory."""
    world, _ = slow()
    log = world.open({"internal.segment.bytes": "16384"})
    fill(log)
    written: set[str] = set()

    def note(operation: str, path: str) -> None:
        if operation == "write_back":
            written.add(path)

    world.disk.fail = note
    first, second, *_ = log.segments.bases
    world.rest(1000)
    assert {f"{log.path}/{first:020d}.log", f"{log.path}/{second:020d}.log"} <= written


def test_a_write_back_error_takes_the_directory_offline() -> None:
    world, log = slow()
    world.disk.fail = lambda operation, _: OSError(errno.EIO, "I/O error") if operation == "write_back" else None
    fill(log)
    seen: list[Any] = []

    def again() -> None:
        try:
            log.append_as_leader(batch(VALUE), 0, NOW)
        except KafkaError as error:
            seen.append(error.code)

    log.dir.budget.wait(len(VALUE), again)
    world.rest(1000)
    assert world.dir.failed is not None
    assert seen == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_without_kernel_numbers_the_directory_counts_its_own_bytes() -> None:
    world, log = slow(ceiling=None)
    budget = log.dir.budget
    log.append_as_leader(batch(VALUE), 0, NOW)
    for _ in range(OWN_BYTES // STEP_BYTES * 2):
        budget.written[log] = None
        budget.left = 0  # the whole budget is used
        if budget.must_wait():
            break
    else:
        raise AssertionError("no append has had to wait")
    world.rest(1000)
    assert not budget.must_wait(), "written back"


def test_a_closed_log_is_not_kept_for_a_write_back() -> None:
    world, log = slow()
    log.append_as_leader(batch(VALUE), 0, NOW)
    log.close()
    assert log not in world.dir.budget.written
