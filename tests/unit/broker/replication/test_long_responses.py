"""A follower appends a long response in steps, so other work of its loop goes on."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from kraft_node.broker.replication.fetcher import Fetcher
from kraft_node.broker.replication.taking import ROLLS_MAX, STEP, next_part
from kraft_node.broker.replication.throttle import ReplicationQuota
from kraft_node.log.config import make_config
from kraft_node.testing.world import START_WALL_MS
from kraft_protocol.records.batch import build_batch
from kraft_protocol.wire import messages as m
from tests.unit.broker.world import Controller, topic_id
from tests.unit.log.node import ID, Node

FETCHED = m.FetchResponse
BATCHES = 2 * STEP + 100


def records(first: int = 0, number: int = BATCHES) -> bytes:
    return b"".join(
        build_batch([(b"k", b"v")], base_offset=first + n, timestamp=START_WALL_MS, leader_epoch=0)
        for n in range(number)
    )


class Follower:
    """Two empty replicas, and the fetcher that follows their leader. Each step takes a turn of the loop."""

    def __init__(self) -> None:
        self.node = Node()
        manager = self.node.start()
        self.logs = [manager.create("t", index, ID) for index in range(2)]
        self.leader = Controller()
        names = ("wait_ms", "min_bytes", "max_bytes", "response_max_bytes", "timeout_ms", "backoff_ms")
        settings: Any = SimpleNamespace(**dict.fromkeys(names, 1))
        env: Any = replace(self.node.host.env(None), turn_ms=count().__next__)  # type: ignore[arg-type]
        quota = ReplicationQuota(env.clock, 1, lambda _: "")
        link: Any = self.leader
        self.fetcher = Fetcher(env, 1, 2, settings, lambda: 5, lambda: link, quota)
        for index in range(2):
            self.follow(index)
        self.node.rest(100)

    def follow(self, index: int, epoch: int = 0) -> None:
        log = self.logs[index]

        def follow_leader(high_watermark: int, start_offset: int, appended_bytes: int) -> None:
            log.high_watermark = min(high_watermark, log.end_offset)

        partition: Any = SimpleNamespace(
            topic="t", topic_id=topic_id(1), index=index, leader_epoch=epoch, is_leader=False, isr=[1, 2], log=log,
            append_fetched=lambda part, rolls: log.append_as_follower(part, epoch, rolls), follow_leader=follow_leader,
        )  # fmt: skip
        self.fetcher.add(partition)

    def answer(self, *sent: bytes) -> None:
        """Answer the latest fetch with these records of the partitions; one step of them is appended at once."""
        rows = [
            FETCHED.PartitionData(partition_index=index, records=memoryview(data), high_watermark=10**6)
            for index, data in enumerate(sent)
        ]
        topic = FETCHED.FetchableTopicResponse(topic_id=topic_id(1), partitions=rows)
        self.leader.take(m.FetchRequest).answer(FETCHED(session_id=7, responses=[topic]))

    def ends(self) -> list[int]:
        return [log.end_offset for log in self.logs]

    def asked(self) -> dict[int, int]:
        """The offsets that the next fetch names."""
        topics = self.leader.take(m.FetchRequest).request.topics
        return {row.partition: row.fetch_offset for topic in topics for row in topic.partitions}


def test_a_long_response_is_appended_in_steps_and_the_next_fetch_waits_for_its_end() -> None:
    follower = Follower()
    follower.answer(records(), records(number=3))
    assert 0 < follower.ends()[0] <= STEP
    assert not follower.leader.sent
    follower.node.rest(100)
    assert follower.ends() == [BATCHES, 3]
    assert follower.asked() == {0: BATCHES, 1: 3}
    assert [log.high_watermark for log in follower.logs] == [BATCHES, 3]


def test_the_rest_of_a_response_is_left_out_once_the_partition_is_not_followed_any_more() -> None:
    follower = Follower()
    follower.answer(records(), records(number=3))
    taken = follower.ends()[0]
    follower.fetcher.remove((topic_id(1), 0))
    follower.node.rest(100)
    assert follower.ends() == [taken, 3]
    assert follower.asked() == {1: 3}


def test_a_partition_in_a_new_epoch_is_fetched_anew_from_its_end() -> None:
    follower = Follower()
    follower.answer(records(), records(number=3))
    follower.logs[0].truncate_to(5)
    follower.follow(0, epoch=1)
    follower.node.rest(100)
    assert follower.ends() == [5, 3]
    assert follower.asked() == {0: 5, 1: 3}


def test_a_log_that_changed_between_two_steps_is_fetched_from_its_end() -> None:
    follower = Follower()
    follower.answer(records(), b"")
    follower.logs[0].truncate_to(5)
    follower.node.rest(100)
    assert follower.ends() == [5, 0]
    assert follower.asked() == {0: 5}


def test_a_closed_fetcher_appends_nothing_more() -> None:
    follower = Follower()
    follower.answer(records(), b"")
    taken = follower.ends()
    follower.fetcher.close()
    follower.node.rest(100)
    assert follower.ends() == taken
    assert not follower.leader.sent


def test_a_step_begins_few_segments() -> None:
    follower = Follower()
    log = follower.logs[0]
    log.set_config(make_config({"internal.segment.bytes": "100"}))
    segments = [len(log.segments)]
    follower.answer(records(number=30), records(number=3))
    segments.append(len(log.segments))
    while follower.ends() != [30, 3]:
        assert follower.node.world.step()
        segments.append(len(log.segments))
    assert max(after - before for before, after in pairwise(segments)) <= ROLLS_MAX
    assert segments[-1] > 3 * ROLLS_MAX
    follower.node.rest(100)
    assert follower.asked() == {0: 30, 1: 3}


def test_a_response_without_a_whole_batch_pauses_the_partition() -> None:
    follower = Follower()
    follower.answer(records(number=1)[:-1], records(number=3))
    follower.node.rest(1)
    assert follower.asked() == {1: 3}
    follower.node.rest(1000)
    assert follower.ends() == [0, 3]


def parts(sent: bytes, limit: int) -> list[tuple[memoryview, int]]:
    """All parts of `sent`; the first costs at most `limit`."""
    found = []
    rest = memoryview(sent)
    while (part := next_part(rest, STEP if found else limit))[0]:
        found.append(part)
        rest = rest[len(part[0]) :]
    return found


@pytest.mark.parametrize("junk", [b"", bytes(60)])
def test_parts_are_all_batches_in_order(junk: bytes) -> None:
    sent = records() + build_batch([(b"k", bytes(3 << 20))], base_offset=BATCHES) + records(BATCHES + 1, 10) + junk
    found = parts(sent + b"x" * (not junk), 20)
    assert b"".join(bytes(part) for part, _ in found) == sent
    assert [cost <= STEP for _, cost in found].count(False) == 1
    assert found[0][1] == 20
