"""A group coordinator alone: time moves on command, logs are in memory, and clients are plain calls.

Every request and response goes through the codec at its version, so fields that a version lacks are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kraft_node.base.env import Env
from kraft_node.base.turns import Turns
from kraft_node.broker.coordinators.group.config import GroupConfig
from kraft_node.broker.coordinators.group.coordinator import GroupCoordinator
from kraft_node.broker.coordinators.group.seams import ClientEndpoint
from kraft_node.broker.coordinators.runtime.machine import TransactionalProducer
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import codec
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from tests.unit.coordinators.surroundings import Logs, Numbers, Time

OFFSETS = "__consumer_offsets"
KEYS = {
    TxnOffsetCommitRequest: ApiKey.TXN_OFFSET_COMMIT,
    FindCoordinatorRequest: ApiKey.FIND_COORDINATOR,
    JoinGroupRequest: ApiKey.JOIN_GROUP,
    SyncGroupRequest: ApiKey.SYNC_GROUP,
    HeartbeatRequest: ApiKey.HEARTBEAT,
    LeaveGroupRequest: ApiKey.LEAVE_GROUP,
    OffsetCommitRequest: ApiKey.OFFSET_COMMIT,
    OffsetFetchRequest: ApiKey.OFFSET_FETCH,
    OffsetDeleteRequest: ApiKey.OFFSET_DELETE,
    ListGroupsRequest: ApiKey.LIST_GROUPS,
    DescribeGroupsRequest: ApiKey.DESCRIBE_GROUPS,
    DeleteGroupsRequest: ApiKey.DELETE_GROUPS,
    ConsumerGroupHeartbeatRequest: ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupDescribeRequest: ApiKey.CONSUMER_GROUP_DESCRIBE,
}


class Topics:
    """The topics of the cluster; this node leads all partitions."""

    def __init__(self, **partitions: int) -> None:
        self.counts: dict[str, int] = {OFFSETS: 1, **partitions}
        self.ids = {name: Uuid(bytes(15) + bytes([i + 100])) for i, name in enumerate(self.counts)}
        self.created: list[str] = []
        self.racks: dict[str, list[list[str]]] = {}
        self.offset = 10

    def create(self, name: str, partitions: int) -> None:
        """Make a topic; `Node.topics_changed` notifies the coordinator."""
        self.counts[name] = partitions
        self.ids[name] = Uuid(bytes(14) + bytes([1, len(self.ids) + 100]))
        self.offset += 1

    def partition_racks(self, name: str) -> list[list[str]]:
        return self.racks.get(name) or [[] for _ in range(self.counts[name])]

    def topic_names(self) -> list[str]:
        return list(self.counts)

    def metadata_offset(self) -> int:
        return self.offset

    def topic_id(self, name: str) -> Uuid | None:
        return self.ids.get(name)

    def topic_name(self, topic_id: Uuid) -> str | None:
        return next((n for n, i in self.ids.items() if i == topic_id), None)

    def has_partition(self, name: str, partition: int) -> bool:
        return 0 <= partition < self.counts.get(name, 0)

    def partition_count(self, name: str) -> int | None:
        return self.counts.get(name)

    def leader_endpoint(self, name: str, partition: int, listener: str) -> ClientEndpoint | None:
        return ClientEndpoint(7, f"{listener.lower()}.example", 9092)

    def create_internal_topic(self, name: str, context: Any) -> None:
        self.created.append(name)


class Call:
    """A request under way: replaces RequestContext, and keeps the answer."""

    def __init__(self, key: ApiKey, version: int, client_id: str = "c", host: str = "10.0.0.1") -> None:
        self.api_key = key
        self.api_version = version
        self.client_id = client_id
        self.client_host = host
        self.listener = "PLAINTEXT"
        self.response: Any = None

    @property
    def answered(self) -> bool:
        return self.response is not None

    def respond(self, message: Any) -> None:
        assert self.response is None, f"{self.api_key.name} was answered twice"
        spec = API[self.api_key]
        self.response = codec.decode(spec.response, codec.encode(message, self.api_version), self.api_version)

    @property
    def error(self) -> ErrorCode:
        assert self.response is not None, f"{self.api_key.name} has not been answered"
        return ErrorCode(self.response.error_code)


class Clients:
    """Clients' requests to a coordinator as plain calls; `send` delivers them."""

    topics: Topics
    config: GroupConfig

    def send(self, request: Any, version: int, client_id: str = "c") -> Any:
        """Deliver the request; the result has `response`, `answered` and `error`."""
        raise AssertionError(type(self).__name__ + " does not say how")

    def wait(self, ms: int) -> None:
        """Let time pass."""
        raise AssertionError(type(self).__name__ + " does not say how")

    # -- members

    def join(
        self,
        group: str = "g",
        member: str = "",
        *,
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        session: int = 10_000,
        rebalance: int = 20_000,
        version: int = 9,
        kind: str = "consumer",
        client_id: str = "c",
    ) -> Call:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance,
            member_id=member,
            group_instance_id=instance,
            protocol_type=kind,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=n, metadata=m)
                for n, m in (protocols or {"range": subscription("t")}).items()
            ],
        )
        return self.send(request, version, client_id)

    def sync(
        self,
        member: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        version: int = 5,
        kind: str = "consumer",
    ) -> Call:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            protocol_type=kind,
            protocol_name="range",
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=m, assignment=a)
                for m, a in (assignments or {}).items()
            ],
        )
        return self.send(request, version)

    def heartbeat(self, member: str, generation: int, group: str = "g", instance: str | None = None) -> ErrorCode:
        return ErrorCode(self.heartbeat_call(member, generation, group, instance).error)

    def heartbeat_call(self, member: str, generation: int, group: str, instance: str | None) -> Any:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
        )
        return self.send(request, 4)

    def leave(self, *members: tuple[str, str | None], group: str = "g", version: int = 5) -> Call:
        identities = [LeaveGroupRequest.MemberIdentity(member_id=m, group_instance_id=i) for m, i in members]
        return self.send(LeaveGroupRequest(group_id=group, members=identities), version)

    def new_member(self, group: str = "g", **options: Any) -> tuple[str, Call]:
        """Join as a new dynamic member does: once for the id, then with it."""
        first = self.join(group, **options)
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED, first.error
        member = first.response.member_id
        return member, self.join(group, member, **options)

    def stable_group(self, count: int = 2, group: str = "g", **options: Any) -> tuple[list[str], int]:
        """A group of `count` members with assignments; returns the members (leader first) and the generation."""
        ids = [self.join(group, **options).response.member_id for _ in range(count)]
        calls = [self.join(group, member, **options) for member in ids]
        self.wait(self.config.initial_rebalance_delay_ms)
        assert all(c.error is ErrorCode.NONE for c in calls)
        generation = calls[0].response.generation_id
        leader = calls[0].response.leader
        ids.sort(key=lambda m: m != leader)
        kind = options.get("kind", "consumer")
        syncs = [self.sync(m, generation, {x: x.encode() for x in ids}, group=group, kind=kind) for m in ids]
        assert all(s.error is ErrorCode.NONE for s in syncs)
        return ids, generation

    # -- offsets

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        group: str = "g",
        member: str = "",
        generation: int = -1,
        *,
        metadata: str | None = None,
        version: int = 9,
        retention: int = -1,
        instance: str | None = None,
    ) -> Call:
        topics: dict[str, list[Any]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            retention_time_ms=retention,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=name, topic_id=self.topics.ids.get(name, Uuid(b"?" * 16)), partitions=partitions
                )
                for name, partitions in topics.items()
            ],
        )
        return self.send(request, version)

    def offsets(
        self, group: str = "g", wanted: dict[str, list[int]] | None = None, *, stable: bool = False, version: int = 9
    ) -> dict[tuple[str, int], int]:
        """The committed offsets; asserts that nothing failed."""
        call = self.fetch(group, wanted, stable=stable, version=version)
        (found,) = call.response.groups
        assert found.error_code == 0, found
        return {
            (t.name or self.topics.topic_name(t.topic_id) or "?", p.partition_index): p.committed_offset
            for t in found.topics
            for p in t.partitions
        }

    def fetch(
        self, group: str = "g", wanted: dict[str, list[int]] | None = None, *, stable: bool = False, version: int = 9
    ) -> Call:
        topics = None
        if wanted is not None:
            topics = [
                OffsetFetchRequest.OffsetFetchRequestTopics(
                    name=name, topic_id=self.topics.ids.get(name, Uuid(b"?" * 16)), partition_indexes=partitions
                )
                for name, partitions in wanted.items()
            ]
        group_request = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)
        return self.send(OffsetFetchRequest(groups=[group_request], require_stable=stable), version)

    # -- consumer groups

    def beat(
        self,
        member: str = "m",
        epoch: int = 0,
        *topics: str,
        group: str = "g",
        owned: dict[str, Sequence[int]] | None = None,
        version: int = 1,
        **fields: Any,
    ) -> Call:
        """ConsumerGroupHeartbeat; with epoch 0 as of a member that joins."""
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 20_000, "subscribed_topic_names": list(topics), **fields}
            owned = owned or {}
        elif topics:
            fields["subscribed_topic_names"] = list(topics)
        rows = None
        if owned is not None:
            row = ConsumerGroupHeartbeatRequest.TopicPartitions
            rows = [row(topic_id=self.topics.ids[name], partitions=list(p)) for name, p in owned.items()]
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, **{"topic_partitions": rows, **fields}
        )
        return self.send(request, version)

    def assigned(self, call: Call) -> dict[str, list[int]] | None:
        """The assignment in the response to a heartbeat, by topic name."""
        assert call.error is ErrorCode.NONE, (call.error, call.response.error_message)
        found = call.response.assignment
        if found is None:
            return None
        return {self.topics.topic_name(row.topic_id) or "?": row.partitions for row in found.topic_partitions}

    def consumer_group(self, group: str = "g", version: int = 1) -> Any:
        """The group as in ConsumerGroupDescribe."""
        request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
        (found,) = self.send(request, version).response.groups
        return found

    # -- administration

    def listed(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> dict[str, tuple[str, str, str]]:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        response = self.send(request, 5).response
        assert response.error_code == 0
        return {g.group_id: (g.group_state, g.group_type, g.protocol_type) for g in response.groups}

    def described(self, group: str = "g", version: int = 6) -> Any:
        (found,) = self.describe_call(group, version).response.groups
        return found

    def describe_call(self, group: str, version: int) -> Any:
        return self.send(DescribeGroupsRequest(groups=[group], include_authorized_operations=version > 3), version)

    def delete_call(self, *groups: str) -> Any:
        return self.send(DeleteGroupsRequest(groups_names=list(groups)), 2)

    def offset_delete_call(self, group: str, topic: str, *partitions: int) -> Any:
        topics = [
            OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=p) for p in partitions],
            )
        ]
        return self.send(OffsetDeleteRequest(group_id=group, topics=topics), 0)

    def delete(self, *groups: str) -> dict[str, ErrorCode]:
        call = self.delete_call(*groups)
        return {r.group_id: ErrorCode(r.error_code) for r in call.response.results}


class Agreement:
    """The transaction coordinators: they agree at once, unless the test sets an `answer` or holds answers back."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.answer: Any = None
        self.hold = False
        self.waiting: list[Callable[[], None]] = []

    def verify(
        self,
        partition: int,
        transactional_id: str,
        producer: TransactionalProducer,
        done: Callable[[Any], None],
        *,
        adds: bool,
        names_abortable: bool,
    ) -> None:
        self.asked.append((partition, transactional_id, producer.producer_id, producer.epoch, adds, names_abortable))
        if self.hold:
            self.waiting.append(lambda: done(self.answer))
        else:
            done(self.answer)


class Lane:
    """Background work, which ends when the test wants it."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def submit(self, _lane: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.jobs.append((work, done))

    def finish(self) -> int:
        """Do all work. Returns how much there was."""
        jobs, self.jobs = self.jobs, []
        for work, done in jobs:
            try:
                result = work()
            except BaseException as error:
                result = error
            done(result)
        return len(jobs)


class Node(Clients):
    """A coordinator that leads all partitions of `__consumer_offsets`, and clients of it."""

    def __init__(self, topics: Topics | None = None, logs: Logs | None = None, **config: Any) -> None:
        self.time = Time()
        self.lane = Lane()
        self.numbers = Numbers()
        self.logs = logs or Logs()
        self.topics = topics or Topics(t=4, u=4)
        self.agreement = Agreement()
        defaults = {"initial_rebalance_delay_ms": 0, "min_session_timeout_ms": 10, "append_linger_ms": 0}
        self.config = GroupConfig(**{**defaults, **config})
        self.coordinator = self.start()

    def start(self) -> GroupCoordinator:
        """A new coordinator on the same logs."""
        self.coordinator = GroupCoordinator(
            clock=self.time,
            scheduler=self.time,
            rng=self.numbers,
            store=self.logs,
            cluster=self.topics,
            config=self.config,
            turns=Turns(Env(self.time, self.time, *[None] * 4)),  # type: ignore[arg-type]
            background=self.lane,
            transactions=self.agreement,
        )
        for partition in range(self.topics.counts.get(OFFSETS, 0)):
            self.coordinator.on_leader(partition, 1)
        for _ in range(1_000):
            self.time.advance()
        return self.coordinator

    def restart(self) -> None:
        """Stop the coordinator and its timers, and start a new coordinator on the same logs."""
        self.coordinator.shutdown()
        self.start()

    def topics_changed(self, *names: str, created: bool = False) -> None:
        """Tell the coordinator that topics have changed."""
        self.topics.offset += 1
        self.coordinator.on_topics_changed(names, created=created)

    def send(self, request: Any, version: int, client_id: str = "c") -> Call:
        """Give the request to its handler."""
        key = KEYS[type(request)]
        call = Call(key, version, client_id)
        request = codec.decode(type(request), codec.encode(request, version), version)
        response = self.coordinator.handlers[key](call, request)  # type: ignore[arg-type]
        if response is not None:
            call.respond(response)
        return call

    def wait(self, ms: int) -> None:
        self.time.advance(ms)


def subscription(*topics: str) -> bytes:
    """A consumer's subscription of version 0."""
    out = (0).to_bytes(2, "big") + len(topics).to_bytes(4, "big")
    for topic in topics:
        out += len(topic).to_bytes(2, "big") + topic.encode()
    return out + (-1).to_bytes(4, "big", signed=True)
