"""Look-ups that must not wait for the disk: they answer, or end with ColdRead and change nothing."""

from __future__ import annotations

import random

import pytest

from kraft_node.base.env import ColdRead
from kraft_node.broker.fetch.cold import bring_in
from kraft_node.log.log import Log
from kraft_node.log.results import FetchSlice
from kraft_protocol.buffers import FileSlice
from tests.unit.log.world import NOW, LogWorld, batch

SMALL = {"internal.segment.bytes": "4000", "index.interval.bytes": "200"}
RECORDS = 300


def opened(world: LogWorld) -> Log:
    """A log of many segments that was just opened: its indexes were not read."""
    world.dir.pending_index_bytes = 0
    log = world.open(SMALL)
    for number in range(RECORDS):
        log.append_as_leader(batch(b"v" * 50, timestamp=NOW + number), 0, NOW)
    log.flush()
    log.close()
    return world.open(SMALL)


def where(found: FetchSlice) -> tuple[str, int, int]:
    assert isinstance(found.records, FileSlice)
    return found.records.file.path, found.records.position, found.records.length


def read_in_rounds(world: LogWorld, log: Log, offset: int) -> tuple[FetchSlice, int]:
    """The result, and how often lanes had to read."""
    rounds = 0
    while True:
        try:
            return log.read(offset, 500, waits=False), rounds
        except ColdRead as cold:
            rounds += 1
            reported: list[int] = []
            bring_in(world.disk, world.env.background, [cold], lambda reported=reported: reported.append(1))
            world.rest(100)
            assert reported == [1]


def test_a_cold_look_up_returns_the_same_after_lanes_have_read() -> None:
    plain, world = LogWorld(), LogWorld()
    log, expected = opened(world), opened(plain)
    world.disk.eviction.chance = 0.4
    world.disk.eviction.rng = random.Random(5)
    rounds = 0
    for offset in range(RECORDS):
        found, some = read_in_rounds(world, log, offset)
        rounds += some
        assert where(found) == where(expected.read(offset, 500))
    assert rounds > 100


def test_a_look_up_of_data_in_memory_never_waits() -> None:
    world = LogWorld()
    log = opened(world)
    other = opened(LogWorld())
    for offset in range(RECORDS):
        assert where(log.read(offset, 500, waits=False)) == where(other.read(offset, 500))


def test_a_read_at_the_end_needs_no_look_up() -> None:
    world = LogWorld()
    log = opened(world)
    log.append_as_leader(batch(b"v"), 0, NOW)
    end = log.end_offset
    log.append_as_leader(batch(b"v"), 0, NOW)
    world.disk.eviction.chance = 1.0
    log.read(end, 500, waits=False)
    with pytest.raises(ColdRead):
        log.read(0, 500, waits=False)


def test_an_index_of_a_cold_log_is_rebuilt_at_once() -> None:
    world = LogWorld()
    log = opened(world)
    index = f"{log.path}/{0:020d}.index"
    size = world.disk.size(index)
    world.disk.remove(index)
    world.disk.eviction.chance = 1.0
    with pytest.raises(ColdRead):
        log.read(5, 500, waits=False)
    assert world.disk.size(index) == size > 0
    world.disk.eviction.chance = 0.0
    assert where(log.read(5, 500)) == where(opened(LogWorld()).read(5, 500))


def test_deleting_a_log_while_a_lane_reads_it_is_no_error() -> None:
    world = LogWorld()
    log = opened(world)
    world.disk.eviction.chance = 1.0
    with pytest.raises(ColdRead) as cold:
        log.read(5, 500, waits=False)
    reported: list[int] = []
    bring_in(world.disk, world.env.background, [cold.value], lambda: reported.append(1))
    log.close()
    world.disk.rmtree(log.path)
    world.rest(100)
    assert reported == [1]
