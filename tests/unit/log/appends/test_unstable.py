"""What holds back the last stable offset, and how much of it is kept."""

from __future__ import annotations

import random

import pytest

from kraft_node.log.producers.unstable import UnstableOffsets
from kraft_protocol.records.control import build_marker
from tests.unit.log.world import NOW, LogWorld, batch


def test_transactions_that_nobody_reads_leave_nothing_behind() -> None:
    """Each stayed in memory, and slowed the next one, until somebody asked for the last stable offset."""
    log = LogWorld().open()
    for number in range(200):
        sent = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=number, transactional=True)
        log.append_as_leader(sent, 0, NOW)
        end = build_marker(commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp=NOW)
        log.append_as_leader(end, 0, NOW, internal=True)
        log.high_watermark = log.end_offset
        assert log.producers.unstable <= 1
    assert log.last_stable_offset == log.end_offset


@pytest.mark.parametrize("seed", range(20))
def test_the_first_unstable_offset_is_that_of_all_transactions(seed: int) -> None:
    rng = random.Random(seed)
    unstable = UnstableOffsets()
    begun: list[int] = []
    ended: list[tuple[int, int]] = []
    end = high_watermark = 0
    for _ in range(600):
        kind = rng.choice(("begin", "end", "replicate", "look"))
        if kind == "begin":
            unstable.begin(end)
            begun.append(end)
            end += 1
        elif kind == "end" and begun:
            first = begun.pop(rng.randrange(len(begun)))
            unstable.end(first, end, high_watermark)
            ended.append((first, end))
            end += 1
        elif kind == "replicate":
            high_watermark = rng.randint(high_watermark, end)
        else:
            assert unstable.first_open == min(begun, default=None)
            held = [*begun, *(first for first, marker in ended if marker >= high_watermark)]
            assert unstable.first(high_watermark) == min(held, default=None)
            assert len(unstable) <= len(held)
