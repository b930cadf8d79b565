"""A member of a classic consumer group: joins, gets partitions, fetches, commits, leaves or dies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kraft_node.testing.workloads.fetching import PartitionReader
from kraft_node.testing.workloads.session import PAUSE_MS, ClusterSession
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import codec, stored
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster

JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT, OFFSET_FETCH = 9, 5, 4, 5, 8, 8
"""API versions."""
SESSION_TIMEOUT_MS: Final = 3_000
REBALANCE_TIMEOUT_MS: Final = 2_000
JOIN_TIMEOUT_MS: Final = 8_000.0
PROTOCOL_VERSION: Final = 1

OUT_OF_THE_GROUP: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS,
)  # fmt: skip
OUT_OF_ITS_PLACE: Final = (*OUT_OF_THE_GROUP, ErrorCode.FENCED_INSTANCE_ID)
"""The same for a static member, which another process may have replaced."""


class Rejoin(Exception):  # noqa: N818 - what to do next
    """The member is no longer in the group, or may not be."""


class Consumer:
    """One member. It takes a new member id whenever it does not know whether a request was handled: see `_commit`."""

    fetcher: type[PartitionReader] = PartitionReader
    instance_id: str | None = None
    """Of a static member (KIP-345)."""
    protocol = "range"

    def __init__(
        self, cluster: SimCluster, checker: Checker, name: str, group: str, topics: dict[str, int], *, sessions: bool
    ) -> None:
        """`topics`: partitions by topic; `sessions`: whether it fetches incrementally (KIP-227)."""
        self.session = ClusterSession(cluster, name)
        self.checker = checker
        self.group = group
        self.topics = topics
        self.stopping = False
        self._rng = cluster.world.rng
        self._fetcher = self.fetcher(self.session, checker, sessions=sessions)
        self._member = ""
        self._generation = -1
        self._coordinator = -1

    @property
    def _outs(self) -> tuple[ErrorCode, ...]:
        return OUT_OF_THE_GROUP if self.instance_id is None else OUT_OF_ITS_PLACE

    async def run(self) -> None:
        """Be a member of the group until stopped, with a new member id after each failure; then leave."""
        session = self.session
        while not self.stopping:
            try:
                await self._live()
            except Rejoin as why:
                session.note(f"rejoins: {why}")
                self._member = ""
                await session.sleep(PAUSE_MS)
        if self._member:
            await self._leave()

    async def _live(self) -> None:
        self._coordinator = await self.session.coordinator(self.group)
        while not self.stopping:
            assigned = await self._join()
            positions = await self._committed(assigned)
            self._fetcher.assign(positions)
            self.session.note(f"reads {_listed(assigned)} in generation {self._generation}")
            while not self.stopping and await self._heartbeat():
                await self._work()
                await self.session.sleep(self._rng.random() * 300)

    async def _work(self) -> None:
        """The work between two heartbeats."""
        for _ in range(self._rng.randint(1, 4)):
            await self._fetcher.fetch(max_wait_ms=self._rng.choice((0, 100, 500)))
        await self._commit()

    async def _ask(self, api_key: ApiKey, version: int, request: Any, timeout_ms: float = 3000.0) -> Any:
        answer = await self.session.request(self._coordinator, api_key, version, request, timeout_ms)
        if answer is None:
            raise Rejoin(f"no answer to {api_key.name.lower()}")
        return answer

    # -- the group

    async def _join(self) -> Sequence[tuple[str, int]]:
        """Join the group. Returns the assigned partitions."""
        return await self._sync(await self._join_group())

    def _subscription(self) -> bytes:
        """What the leader learns of this member."""
        subscription = codec.encode(stored.ConsumerProtocolSubscription(topics=sorted(self.topics)), PROTOCOL_VERSION)
        return PROTOCOL_VERSION.to_bytes(2, "big") + subscription

    async def _join_group(self) -> Any:
        """Join the next generation. Returns the answer, which came once all members had joined."""
        while True:
            protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name=self.protocol, metadata=self._subscription())
            request = m.JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=self._member,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocols=[protocol],
            )
            joined = await self._ask(ApiKey.JOIN_GROUP, JOIN, request, JOIN_TIMEOUT_MS)
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member = joined.member_id
                continue
            if joined.error_code:
                self._refused(joined.error_code, "join")
            self._member, self._generation = joined.member_id, joined.generation_id
            return joined

    async def _sync(self, joined: Any) -> Sequence[tuple[str, int]]:
        """Send the assignments of all members if this member is the leader. Returns its own partitions."""
        assignments = self._assign(joined) if joined.leader == joined.member_id else []
        sync = m.SyncGroupRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._member,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=assignments,
        )
        synced = await self._ask(ApiKey.SYNC_GROUP, SYNC, sync, JOIN_TIMEOUT_MS)
        if synced.error_code:
            self._refused(synced.error_code, "sync")
        assignment = codec.decode(stored.ConsumerProtocolAssignment, synced.assignment[2:], PROTOCOL_VERSION)
        return [(topic.topic, index) for topic in assignment.assigned_partitions for index in topic.partitions]

    def _refused(self, code: int, what: str) -> NoReturn:
        """Raise Rejoin for the error of an answer, or Surprise."""
        self.session.expect(code, *self._outs, what=what)
        raise Rejoin(ErrorCode(code).name)

    def _assign(self, joined: Any) -> list[Any]:
        """The work of the group's leader: assign partitions round-robin."""
        members = sorted(member.member_id for member in joined.members)
        parts = [(topic, index) for topic, count in sorted(self.topics.items()) for index in range(count)]
        return assignments({member: parts[place :: len(members)] for place, member in enumerate(members)})

    async def _heartbeat(self) -> bool:
        """Whether the generation continues."""
        request = m.HeartbeatRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._member,
            group_instance_id=self.instance_id,
        )
        answer = await self._ask(ApiKey.HEARTBEAT, HEARTBEAT, request)
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        if answer.error_code:
            self._refused(answer.error_code, "heartbeat")
        return True

    async def _leave(self) -> None:
        member = m.LeaveGroupRequest.MemberIdentity(member_id=self._member, group_instance_id=self.instance_id)
        request = m.LeaveGroupRequest(group_id=self.group, members=[member])
        await self.session.request(self._coordinator, ApiKey.LEAVE_GROUP, LEAVE, request)

    # -- offsets

    async def _committed(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        asked = self.checker.expect_committed(self.group, partitions)
        found = await fetch_committed(self.session, self._coordinator, self.group, partitions)
        if found is None:
            raise Rejoin("no committed offsets")
        self.checker.committed(asked, found, self.session.name)
        return {partition: max(offset, 0) for partition, offset in found.items()}

    async def _commit(self) -> set[ErrorCode]:
        """Commit all positions that have moved. Returns the error codes. Without a response the member starts anew. The
        request may still be under way, and must not be taken for a request of the next generation.
        """
        positions = self._fetcher.moved()
        if not positions:
            return set()
        by_topic: dict[str, list[Any]] = {}
        for (topic, index), offset in positions.items():
            row = m.OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=self._fetcher.epochs.get((topic, index), -1),
            )
            by_topic.setdefault(topic, []).append(row)
        request = m.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member,
            group_instance_id=self.instance_id,
            topics=[
                m.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=rows)
                for topic, rows in by_topic.items()
            ],
        )
        self.checker.committing(self.group, positions)
        asked = self.checker.now()
        answer = await self._ask(ApiKey.OFFSET_COMMIT, COMMIT, request)
        done, codes = {}, set()
        for topic in answer.topics:
            for row in topic.partitions:
                code = ErrorCode(row.error_code)
                codes.add(code)
                if code == ErrorCode.NONE:
                    done[topic.name, row.partition_index] = positions[topic.name, row.partition_index]
                else:
                    self.session.expect(code, *self._outs, ErrorCode.REQUEST_TIMED_OUT, what="offset commit")
        self.checker.commit_done(self.group, done, asked)
        self._fetcher.settled(done)
        return codes


def assignments(of_members: Mapping[str, Iterable[tuple[str, int]]]) -> list[Any]:
    """The partitions of each member, as the leader sends them."""
    made = []
    kind = stored.ConsumerProtocolAssignment.TopicPartition
    for member, partitions in of_members.items():
        own: dict[str, list[int]] = {}
        for topic, index in partitions:
            own.setdefault(topic, []).append(index)
        assignment = stored.ConsumerProtocolAssignment(
            assigned_partitions=[kind(topic=topic, partitions=indexes) for topic, indexes in own.items()]
        )
        raw = PROTOCOL_VERSION.to_bytes(2, "big") + codec.encode(assignment, PROTOCOL_VERSION)
        made.append(m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=raw))
    return made


async def fetch_committed(
    session: ClusterSession, coordinator: int, group: str, partitions: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], int] | None:
    """The committed offsets of a group, -1 for none; None if the coordinator cannot answer,
    or if a transaction with offsets is open."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    kind = m.OffsetFetchRequest.OffsetFetchRequestTopics
    asked = m.OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=group,
        topics=[kind(name=topic, partition_indexes=indexes) for topic, indexes in by_topic.items()],
    )
    answer = await session.request(
        coordinator, ApiKey.OFFSET_FETCH, OFFSET_FETCH, m.OffsetFetchRequest(groups=[asked], require_stable=True)
    )
    if answer is None:
        return None
    of_group = answer.groups[0]
    if of_group.error_code:
        session.expect(of_group.error_code, *OUT_OF_THE_GROUP, what="offset fetch")
        return None
    found = {}
    for topic in of_group.topics:
        for row in topic.partitions:
            if row.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                return None
            session.expect(row.error_code, ErrorCode.NONE, what="offset fetch")
            session.saw_epoch(topic.name, row.partition_index, row.committed_leader_epoch)
            found[topic.name, row.partition_index] = row.committed_offset
    return found


def _listed(partitions: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in partitions) or "nothing"
