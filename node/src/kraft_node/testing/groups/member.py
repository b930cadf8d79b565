"""A member of a consumer group (KIP-848), as clients implement it.

It sends everything in a heartbeat after a response with an assignment, after a failure, and when it joins. It commits
what it has read before it reports that it has given up partitions. Without an answer to a commit it begins again as
another member: the request may still be under way, and must not be taken for a later one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kraft_node.testing.groups.ownership import Ownership, Partition
from kraft_node.testing.workloads.fetching import PartitionReader
from kraft_node.testing.workloads.session import PAUSE_MS, ClusterSession
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster

HEARTBEAT, COMMIT, OFFSET_FETCH = 1, 9, 9
"""API versions."""
JOINING, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2
"""Epochs in heartbeats."""
REBALANCE_TIMEOUT_MS: Final = 3_000
REVOKES_MAX_MS: Final = 400.0
"""How long an application works on partitions that it must give up."""
FENCED_SAME_ID_SHARE: Final = 0.5
"""How often a fenced member joins again with its id."""

AWAY: Final = (
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
)  # fmt: skip
OUT: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID,
)  # fmt: skip
"""Errors after which the member must begin again, as another member."""
STALE: Final = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION)
"""Errors after which the next heartbeat brings the right epoch."""


@dataclass(frozen=True)
class Ways:
    """How a member subscribes, and what it does besides."""

    topics: tuple[str, ...]
    pattern: str | None = None
    """A regular expression in place of the topics."""
    instance_id: str | None = None
    assignor: str | None = None
    sessions: bool = False
    """Whether it fetches incrementally."""
    leaves: float = 0.02
    """The probability of leaving after a round of fetches."""
    dies: float = 0.02
    """The probability of ending without leaving the group, after a round of fetches."""


class OutOfTheGroup(Exception):  # noqa: N818 - what to do next
    """The member must join again."""


class SimulatedMember:
    """One member after the other, with new member ids."""

    def __init__(
        self,
        cluster: SimCluster,
        checker: Checker,
        ownership: Ownership,
        name: str,
        ways: Ways,
        is_newest: Callable[[int, str], bool],
    ) -> None:
        """`is_newest(node, group)`: the node is the group's coordinator, and no later one was elected."""
        self.session = ClusterSession(cluster, name)
        self.checker = checker
        self.group = ownership.group
        self.stopping = False
        self.stays = False
        """Whether it neither leaves nor dies from now on."""
        self._ownership = ownership
        self._ways = ways
        self._is_newest = is_newest
        self._world = cluster.world
        self._rng = random.Random(f"{name} of {cluster.world.seed}")
        self._fetcher = PartitionReader(self.session, checker, sessions=ways.sessions)
        self._lives = 0
        self._coordinator = -1
        self._member = ""
        self._epoch = JOINING
        self._owned: set[Partition] = set()
        self._sends_all = True
        self._due_ms = 0.0

    async def run(self) -> None:
        """Live in the group until stopped, as a new member after each life that ends; leave at the end."""
        while not self.stopping:
            self._begin_life()
            try:
                await self._live()
            except OutOfTheGroup as why:
                self.session.note(f"{self._member} joins again: {why}")
                self._ownership.ended(self._member)
                await self.session.sleep(PAUSE_MS)

    def _begin_life(self, *, same_id: bool = False) -> None:
        if not same_id:
            self._lives += 1
            self._member = f"{self.session.name}-{self._lives}"
        self._epoch, self._sends_all, self._due_ms = JOINING, True, 0.0
        self._set_owned(set())

    def _set_owned(self, owned: set[Partition], positions: dict[Partition, int] | None = None) -> None:
        kept = {partition: at for partition, at in self._fetcher.positions.items() if partition in owned}
        self._owned = owned
        self._fetcher.assign({**kept, **(positions or {})})

    async def _live(self) -> None:
        await self._look_up()
        while True:
            while self._world.now_ms >= self._due_ms or self._sends_all:
                if not await self._beat():
                    await self.session.sleep(PAUSE_MS)
                    await self._look_up()
            for _ in range(self._rng.randint(1, 3)):
                if self._fetcher.positions:
                    await self._fetcher.fetch(max_wait_ms=self._rng.choice((0, 100, 300)))
            await self._commit()
            await self.session.sleep(self._rng.random() * 200)
            if self.stopping or (not self.stays and self._rng.random() < self._ways.leaves):
                await self._leave()
                return
            if not self.stays and self._rng.random() < self._ways.dies:
                self.session.note(f"{self._member} dies")
                self._ownership.ended(self._member)
                return

    async def _look_up(self) -> None:
        self._coordinator = await self.session.coordinator(self.group)
        self._sends_all = True

    # -- heartbeats

    async def _beat(self) -> bool:
        """Send a heartbeat and follow its answer. Returns False if the coordinator must be looked up again."""
        sent_ms, ways = self._world.now_ms, self._ways
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self._member, member_epoch=self._epoch, instance_id=ways.instance_id
        )
        if self._sends_all or self._epoch == JOINING:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = [] if ways.pattern else list(ways.topics)
            request.subscribed_topic_regex = ways.pattern or ""
            request.server_assignor = ways.assignor
            request.topic_partitions = await self._rows()
        answer = await self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT, request)
        if answer is None or answer.error_code in AWAY:
            return False
        if answer.error_code:
            self.session.expect(answer.error_code, *OUT, what="heartbeat")
            self._fenced(ErrorCode(answer.error_code))
            return True
        await self._follow(answer, sent_ms)
        return True

    def _fenced(self, code: ErrorCode) -> None:
        if code != ErrorCode.FENCED_MEMBER_EPOCH or self._rng.random() >= FENCED_SAME_ID_SHARE:
            raise OutOfTheGroup(code.name)
        self._ownership.ended(self._member)
        self._begin_life(same_id=True)

    async def _follow(self, answer: Any, sent_ms: float) -> None:
        counts = self._is_newest(self._coordinator, self.group)
        self._sends_all = False
        self._due_ms = self._world.now_ms + answer.heartbeat_interval_ms
        target = self._owned if answer.assignment is None else await self._named(answer.assignment)
        if target is None:
            self._sends_all = True  # the metadata is behind the coordinator's
            await self.session.sleep(PAUSE_MS)
            return
        self._epoch = answer.member_epoch
        if counts:
            self._ownership.assigned_in(self._epoch, self._ways.instance_id or self._member, target)
            if self._owned <= target:
                self._ownership.confirmed(self._member, sent_ms)
        if answer.assignment is None:
            return
        owned = self._owned
        if owned - target:
            await self.session.sleep(self._rng.random() * REVOKES_MAX_MS)
            await self._commit()
            self._set_owned(self._owned & target)
        self._sends_all = target != owned  # the coordinator waits for the report
        added = target - self._owned
        if added:
            await self._take(added)
        self._ownership.assigned_to(self._member, self._owned if counts else self._owned & owned, self._world.now_ms)

    async def _take(self, added: set[Partition]) -> None:
        """Begin with new partitions where the group is; they stay out until their offsets are known."""
        found = await self._committed(added)
        if found is None:
            await self.session.sleep(PAUSE_MS)
        else:
            self._set_owned(self._owned | added, {partition: max(at, 0) for partition, at in found.items()})
            self.session.note(f"{self._member} reads {_listed(self._owned)} in epoch {self._epoch}")

    async def _rows(self) -> list[Any]:
        """The owned partitions as a heartbeat names them."""
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(self._owned):
            by_topic.setdefault(topic, []).append(index)
        row = m.ConsumerGroupHeartbeatRequest.TopicPartitions
        return [
            row(topic_id=Uuid(self.session.topic_ids[topic]), partitions=indexes) for topic, indexes in by_topic.items()
        ]

    async def _named(self, assignment: Any) -> set[Partition] | None:
        """The assigned partitions by name; None if a topic is not known yet."""
        names = {topic_id: name for name, topic_id in self.session.topic_ids.items()}
        if any(topic.topic_id not in names for topic in assignment.topic_partitions):
            await self.session.refresh(list(self._ways.topics))
            names = {topic_id: name for name, topic_id in self.session.topic_ids.items()}
        if any(topic.topic_id not in names for topic in assignment.topic_partitions):
            return None
        return {(names[topic.topic_id], index) for topic in assignment.topic_partitions for index in topic.partitions}

    async def _leave(self) -> None:
        """Leave; a static member only for a while, unless it stops for good."""
        is_static = self._ways.instance_id is not None
        epoch = LEAVES_FOR_A_WHILE if is_static and not self.stopping else LEAVES
        self.session.note(f"{self._member} leaves with {epoch}")
        self._ownership.ended(self._member)
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self._member, member_epoch=epoch, instance_id=self._ways.instance_id
        )
        await self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT, request)

    async def _ask(self, api_key: ApiKey, version: int, request: Any) -> Any:
        return await self.session.request(self._coordinator, api_key, version, request)

    # -- offsets

    async def _committed(self, partitions: Iterable[Partition]) -> dict[Partition, int] | None:
        """Committed offsets, -1 for none; None if the member must send a heartbeat first."""
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(partitions):
            by_topic.setdefault(topic, []).append(index)
        kind = m.OffsetFetchRequest.OffsetFetchRequestTopics
        wanted = m.OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=self.group,
            member_id=self._member,
            member_epoch=self._epoch,
            topics=[kind(name=topic, partition_indexes=indexes) for topic, indexes in by_topic.items()],
        )
        asked = self.checker.expect_committed(self.group, partitions)
        request = m.OffsetFetchRequest(groups=[wanted], require_stable=True)
        answer = await self._ask(ApiKey.OFFSET_FETCH, OFFSET_FETCH, request)
        if answer is None or answer.groups[0].error_code in AWAY:
            await self._look_up()
            return None
        of_group = answer.groups[0]
        if of_group.error_code:
            self.session.expect(of_group.error_code, *OUT, *STALE, what="offset fetch")
            if of_group.error_code in OUT:
                raise OutOfTheGroup(ErrorCode(of_group.error_code).name)
            return None
        found = {}
        for topic in of_group.topics:
            for row in topic.partitions:
                self.session.expect(row.error_code, ErrorCode.NONE, what="offset fetch")
                found[topic.name, row.partition_index] = row.committed_offset
        is_newest = self._is_newest(self._coordinator, self.group)
        self.checker.committed(asked, found, self.session.name, settled=is_newest)
        return found

    async def _commit(self) -> None:
        """Commit all positions that have moved."""
        positions = self._fetcher.moved()
        if not positions or self._epoch == JOINING:
            return
        by_topic: dict[str, list[Any]] = {}
        for (topic, index), offset in positions.items():
            row = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            by_topic.setdefault(topic, []).append(row)
        kind = m.OffsetCommitRequest.OffsetCommitRequestTopic
        request = m.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._member,
            group_instance_id=self._ways.instance_id,
            topics=[kind(name=topic, partitions=rows) for topic, rows in by_topic.items()],
        )
        self.checker.committing(self.group, positions)
        asked = self.checker.now()
        answer = await self._ask(ApiKey.OFFSET_COMMIT, COMMIT, request)
        if answer is None:
            raise OutOfTheGroup("no answer to a commit")
        done, codes = {}, set()
        for topic in answer.topics:
            for row in topic.partitions:
                codes.add(ErrorCode(row.error_code))
                if row.error_code == ErrorCode.NONE:
                    done[topic.name, row.partition_index] = positions[topic.name, row.partition_index]
                else:
                    self.session.expect(row.error_code, *AWAY, *OUT, *STALE, what="offset commit")
        self.checker.commit_done(self.group, done, asked)
        self._fetcher.settled(done)
        gone = codes.intersection(OUT)
        if gone:
            raise OutOfTheGroup(gone.pop().name)
        if codes - {ErrorCode.NONE}:
            self._due_ms = 0.0


def _listed(partitions: Iterable[Partition]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions)) or "nothing"
