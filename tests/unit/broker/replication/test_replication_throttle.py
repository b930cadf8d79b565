"""Replication quotas: which bytes they count, and which replicas they throttle."""

from __future__ import annotations

from typing import SupportsIndex

from kraft_node.broker.replication.throttle import SAMPLES, ReplicationQuota
from tests.unit.broker.world import Loop

LISTED = {"t": "0:1, 2:1,3:2", "all": "*"}


def quota(loop: Loop, limit: int | None = 100) -> ReplicationQuota:
    made = ReplicationQuota(loop, 1, lambda topic: LISTED.get(topic, ""))
    if limit is not None:
        made.limit = limit
    return made


def test_only_listed_replicas_are_throttled() -> None:
    held = quota(Loop())
    assert [held.applies_to("t", index) for index in range(4)] == [True, False, True, False]
    assert held.applies_to("all", 7)
    assert not held.applies_to("other", 0)


def test_the_rate_covers_the_last_seconds() -> None:
    loop = Loop()
    held = quota(loop)
    held.record("t", 0, 90)
    held.record("t", 1, 10**9)
    assert not held.holds("t", 0)
    loop.run(4000)
    held.record("t", 2, 350)
    assert held.rate() == 110  # 440 bytes in four seconds
    assert held.holds("t", 0)
    assert not held.holds("t", 1), "not listed"
    loop.run(1000)
    assert held.rate() == 88
    assert not held.holds("t", 0)
    loop.run(1000 * (SAMPLES - 2))
    assert held.rate() == 35  # the first second is outside the window
    loop.run(1000 * SAMPLES)
    assert held.rate() == 0


def test_a_move_does_not_start_with_a_burst() -> None:
    loop = Loop()
    held = quota(loop)
    sent = 0
    for _ in range(300):
        if not held.holds("t", 0):
            held.record("t", 0, 20)
            sent += 20
        loop.run(10)
    # Three seconds at 100 bytes each; Kafka's overshoots by up to one read and one second.
    assert 300 <= sent <= 420


def test_without_a_limit_no_bytes_are_counted() -> None:
    held = quota(Loop(), None)
    held.record("t", 0, 10**12)
    assert (held.rate(), held.holds("t", 0)) == (0, False)


class List(str):
    """A list of replicas that counts how often it is read."""

    __slots__ = ()
    reads = 0

    def strip(self, _chars: str | None = None, /) -> str:
        return self

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        List.reads += 1
        return super().split(sep, maxsplit)


def test_the_list_of_a_topic_is_read_once_for_all_its_partitions() -> None:
    listed = List(",".join(f"{index}:1,{index}:2" for index in range(0, 1000, 2)))
    held = ReplicationQuota(Loop(), 1, lambda _topic: listed)
    held.limit = 100
    assert [index for index in range(1000) if held.applies_to("t", index)] == list(range(0, 1000, 2))
    assert List.reads == 1
