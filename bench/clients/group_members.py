"""Members of a consumer group (KIP-848): each has a connection and sends heartbeats as the Java client does.

A member reports a new assignment at once, and otherwise sends a heartbeat in each interval that the server names. It
fetches nothing, so the server's work is that of the group alone.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable
from typing import Any

from bench.clients.crowd import Crowd
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import ConsumerGroupHeartbeatRequest as Request

VERSION = 1
LEAVES = -1
REBALANCE_MS = 300_000
RETRY_S = 0.1
RETRIABLE = (14, 15, 16)
"""Load in progress, coordinator not available, not coordinator."""

Partition = tuple[Uuid, int]
"""Topic id and number."""


class Member:
    """One member, from its join to its leave."""

    def __init__(self, crowd: Crowd, port: int, group: str, topic: str) -> None:
        self._crowd = crowd
        self._connection = crowd.connect(port)
        self._group = group
        self._topic = topic
        self._id = str(uuid.uuid4())
        self._is_leaving = False
        self._beats = 0
        self.epoch = 0
        self.owned: frozenset[Partition] = frozenset()
        self.has_left = False
        self.is_reporting = False
        """Whether the server does not know yet that the member has the assignment."""

    def join(self) -> None:
        """Send the first heartbeat."""
        self._beat(
            Request(
                group_id=self._group,
                member_id=self._id,
                member_epoch=0,
                rebalance_timeout_ms=REBALANCE_MS,
                subscribed_topic_names=[self._topic],
                topic_partitions=[],
            )
        )

    def leave(self) -> None:
        """Leave the group after the request under way."""
        self._is_leaving = True
        if not self._connection.under_way:
            self._part()

    def _part(self) -> None:
        self._beat(Request(group_id=self._group, member_id=self._id, member_epoch=LEAVES))

    def _beat(self, request: Any) -> None:
        self._beats += 1
        self._connection.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, VERSION, request, self._answered)

    def _answered(self, answer: Any) -> None:
        assert answer is not None, f"{self._group}: a member lost its connection"
        if answer.error_code in RETRIABLE and not self.epoch:
            self._crowd.later(RETRY_S, self.join)
            return
        assert answer.error_code == 0, f"{self._group}: heartbeat: error {answer.error_code} {answer.error_message}"
        if answer.member_epoch == LEAVES:
            self.has_left = True
            self._connection.close()
            return
        self.epoch = answer.member_epoch
        self.is_reporting = False
        if self._is_leaving:
            self._part()
        elif answer.assignment is not None:
            self.owned = frozenset(
                (topic.topic_id, number) for topic in answer.assignment.topic_partitions for number in topic.partitions
            )
            self.is_reporting = True
            self._report()
        else:
            beats = self._beats
            self._crowd.later(answer.heartbeat_interval_ms / 1000, lambda: self._again(beats))

    def _again(self, beats: int) -> None:
        if self._beats == beats and not self._is_leaving:
            self._beat(Request(group_id=self._group, member_id=self._id, member_epoch=self.epoch))

    def _report(self) -> None:
        by_topic: dict[Uuid, list[int]] = {}
        for topic_id, number in sorted(self.owned):
            by_topic.setdefault(topic_id, []).append(number)
        owned = [Request.TopicPartitions(topic_id, numbers) for topic_id, numbers in by_topic.items()]
        self._beat(Request(group_id=self._group, member_id=self._id, member_epoch=self.epoch, topic_partitions=owned))


class Members:
    """The members of one group."""

    def __init__(self, crowd: Crowd, port: int, group: str, topic: str, count: int) -> None:
        self.crowd = crowd
        self.all = [Member(crowd, port, group, topic) for _ in range(count)]

    def join(self) -> None:
        """All members join at once."""
        for member in self.all:
            member.join()

    def are_stable(self, partitions: int) -> bool:
        """Whether the members of one epoch own every partition, evenly, and have reported it.

        Raises AssertionError if two members own a partition.
        """
        if any(member.is_reporting for member in self.all) or len({member.epoch for member in self.all}) > 1:
            return False
        sizes = [len(member.owned) for member in self.all]
        return sum(sizes) == partitions and max(sizes) - min(sizes) <= 1 and len(self.owners()) == partitions

    def owners(self) -> dict[Partition, Member]:
        """The owner of each partition. Raises AssertionError if a partition has two."""
        owners = {partition: member for member in self.all for partition in member.owned}
        counted = Counter(partition for member in self.all for partition in member.owned)
        twice = [partition for partition, count in counted.items() if count > 1]
        assert not twice, f"{len(twice)} partitions have two owners"
        return owners

    def remove(self, members: Iterable[Member]) -> None:
        """Let members leave, and wait for it."""
        gone = list(members)
        for member in gone:
            member.leave()
        self.crowd.until("members have left", lambda: all(member.has_left for member in gone))
        self.all = [member for member in self.all if member not in gone]
