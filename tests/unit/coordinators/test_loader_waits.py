"""If the log of a partition cannot be opened yet, the load is repeated a little later."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

from kraft_node.broker.coordinators.runtime.loader import Loader
from kraft_node.broker.coordinators.runtime.shard import Phase
from kraft_node.testing.disk import SimDisk
from kraft_node.testing.world import SimHost, SimScheduler, World
from kraft_protocol.errors import ErrorCode, KafkaError


def load(codes: list[ErrorCode], cause: Exception | None = None) -> tuple[list[Exception | None], float]:
    """The result of a load whose log first answers with `codes`, and its time."""
    world = World(1)

    def start_offset(partition: int) -> int:
        if codes:
            raise KafkaError(codes.pop(0), "not now") from cause
        return 0

    store = SimpleNamespace(start_offset=start_offset, end_offset=lambda _: 0, high_watermark=lambda _: 0)
    shard: Any = SimpleNamespace(
        phase=Phase.LOADING,
        partition=0,
        store=store,
        machine=SimpleNamespace(complete_load=lambda: iter(())),
        scheduler=SimScheduler(world, SimHost(world, "n1", SimDisk(world.rng))),
        high_watermark_moved=lambda _: None,
    )
    ends: list[Exception | None] = []
    Loader(shard, ends.append).start()
    world.run(lambda: bool(ends), 10_000)
    return ends, world.now_ms


def test_the_load_waits_for_a_log_that_is_being_made() -> None:
    ends, when_ms = load([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3)
    assert ends == [None]
    assert when_ms >= 100


def test_a_failed_directory_ends_the_load() -> None:
    ends, _ = load([ErrorCode.KAFKA_STORAGE_ERROR])
    assert isinstance(ends[0], KafkaError)


def test_the_load_waits_during_a_shortage_of_descriptors() -> None:
    ends, when_ms = load([ErrorCode.KAFKA_STORAGE_ERROR] * 3, OSError(errno.EMFILE, "too many open files"))
    assert ends == [None]
    assert when_ms >= 100
