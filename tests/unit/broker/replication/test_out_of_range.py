"""A follower whose end the leader's log does not hold continues from the leader's start or end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraft_node.broker.replication.fetcher import Fetcher
from kraft_node.broker.replication.throttle import ReplicationQuota
from kraft_node.log.log import Log
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from tests.unit.broker.world import Controller, topic_id
from tests.unit.log.node import ID, Node
from tests.unit.log.world import NOW, batch

FETCHED = m.FetchResponse
LISTED = m.ListOffsetsResponse


class Follower:
    """A replica of 10 records, and the fetcher that follows its leader."""

    def __init__(self) -> None:
        self.node = Node()
        self.log: Log = self.node.start().create("t", 0, ID)
        self.append(10)
        self.leader = Controller()
        self.partition: Any = SimpleNamespace(
            topic="t", topic_id=topic_id(1), index=0, leader_epoch=0, is_leader=False, isr=[1, 2], log=self.log,
        )  # fmt: skip
        names = ("wait_ms", "min_bytes", "max_bytes", "response_max_bytes", "timeout_ms", "backoff_ms")
        settings: Any = SimpleNamespace(**dict.fromkeys(names, 1))
        env: Any = self.node.host.env(None)  # type: ignore[arg-type]
        quota = ReplicationQuota(env.clock, 1, lambda _: "")
        link: Any = self.leader
        self.fetcher = Fetcher(env, 1, 2, settings, lambda: 5, lambda: link, quota)
        self.follow()

    def append(self, count: int) -> None:
        for _ in range(count):
            self.log.append_as_leader(batch(b"v"), 0, NOW)

    def follow(self) -> None:
        self.fetcher.add(self.partition)
        self.node.rest(100)

    def refuse_offset(self) -> None:
        """The leader answers the next fetch with OFFSET_OUT_OF_RANGE."""
        row = FETCHED.PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        topic = FETCHED.FetchableTopicResponse(topic_id=topic_id(1), partitions=[row])
        self.leader.take(m.FetchRequest).answer(FETCHED(responses=[topic]))

    def asked(self) -> Any:
        """The fetcher's question for an offset of the leader; call it with the answer."""
        sent = next(one for one in self.leader.sent if isinstance(one.request, m.ListOffsetsRequest))
        self.leader.sent.remove(sent)

        def answer(offset: int) -> None:
            row = LISTED.ListOffsetsPartitionResponse(partition_index=0, offset=offset)
            topic = LISTED.ListOffsetsTopicResponse(name="t", partitions=[row])
            sent.answer(LISTED(topics=[topic]))
            self.node.rest(100)

        return answer


def test_a_log_that_ends_behind_the_leaders_is_cut_to_its_end() -> None:
    follower = Follower()
    follower.refuse_offset()
    follower.asked()(4)
    assert follower.log.end_offset == 4


def test_a_log_that_ends_before_the_leaders_start_begins_there() -> None:
    follower = Follower()
    follower.refuse_offset()
    follower.asked()(40)
    follower.asked()(30)
    assert (follower.log.start_offset, follower.log.end_offset) == (30, 30)


def test_a_late_answer_changes_nothing_once_the_partition_is_followed_anew() -> None:
    """The number of fetchers changed meanwhile: the new one had fetched records, which the old answer removed."""
    follower = Follower()
    follower.refuse_offset()
    late = follower.asked()
    follower.fetcher.remove((topic_id(1), 0))
    follower.follow()
    follower.append(5)
    late(4)
    assert follower.log.end_offset == 15
