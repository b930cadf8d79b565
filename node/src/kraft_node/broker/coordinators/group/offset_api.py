"""The requests about offsets: resolves topics, splits by group, and answers after the commit.

OffsetCommit 2-10 (retention time until 4, leader epoch from 6, topic ids from 10), OffsetFetch 1-10 (all topics from 2,
require_stable from 7, several groups from 8, topic ids from 10), OffsetDelete 0.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from kraft_node.broker.coordinators.group import commits
from kraft_node.broker.coordinators.group.commits import RequestedTopic
from kraft_node.broker.coordinators.group.offsets import CommittedOffset
from kraft_node.broker.coordinators.group.records import Change, OffsetChange
from kraft_node.broker.coordinators.runtime.failures import client_error
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import ZERO_UUID
from kraft_protocol.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraft_node.base.env import Clock
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.coordinators.group.config import GroupConfig
    from kraft_node.broker.coordinators.group.seams import ClusterView
    from kraft_node.broker.coordinators.group.shard import Shard
    from kraft_node.broker.coordinators.runtime.engine import Runtime

FIRST_VERSION_WITH_TOPIC_IDS: Final = 10
FIRST_FETCH_VERSION_WITH_GROUPS: Final = 8
FIRST_FETCH_VERSION_WITH_GROUP_ERROR: Final = 2
NO_RETENTION_TIME: Final = -1
END_OF_TIME_MS: Final = 2**63 - 1

CommitTopic = OffsetCommitResponse.OffsetCommitResponseTopic
CommitPartition = OffsetCommitResponse.OffsetCommitResponsePartition
FetchedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
FetchGroup = OffsetFetchResponse.OffsetFetchResponseGroup


class OffsetApi:
    """Handlers of the three requests."""

    __slots__ = ("_clock", "_cluster", "_config", "_runtime")

    def __init__(self, runtime: Runtime[Shard], cluster: ClusterView, config: GroupConfig, clock: Clock) -> None:
        self._runtime = runtime
        self._cluster = cluster
        self._config = config
        self._clock = clock

    # -- OffsetCommit

    def offset_commit(self, ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse | None:
        """Store offsets. Unknown topics and partitions are refused, the rest is committed in one batch."""
        by_id = ctx.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
        now = self._clock.wall_ms()
        expire = None
        if request.retention_time_ms != NO_RETENTION_TIME:
            expire = min(now + request.retention_time_ms, END_OF_TIME_MS)
        topics: list[CommitTopic] = []
        accepted: list[CommitPartition] = []
        changes: list[OffsetChange] = []
        for topic in request.topics:
            answer = CommitTopic(name=topic.name, topic_id=topic.topic_id, partitions=[])
            name = self._cluster.topic_name(topic.topic_id) if by_id else topic.name
            topic_id = topic.topic_id if by_id else self._cluster.topic_id(topic.name)
            if topic.partitions or name is None or topic_id is None:  # only unknown topics are reported without a row
                topics.append(answer)
            for p in topic.partitions:
                code = ErrorCode.NONE
                if name is None:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                elif topic_id is None or not self._cluster.has_partition(name, p.partition_index):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                result = CommitPartition(partition_index=p.partition_index, error_code=code)
                answer.partitions.append(result)
                if name is None or topic_id is None or code is not ErrorCode.NONE:
                    continue
                accepted.append(result)
                if commits.metadata_too_large(p.committed_metadata, self._config.offset_metadata_max_bytes):
                    result.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                    continue
                value = CommittedOffset(
                    p.committed_offset, p.committed_leader_epoch, p.committed_metadata or "", now, expire, topic_id
                )
                changes.append(OffsetChange(request.group_id, name, p.partition_index, value))
        response = OffsetCommitResponse(topics=topics)
        if not accepted:
            return response
        try:
            shard = self._runtime.shard_of(request.group_id).machine
            partitions = [(c.value.topic_id, c.partition) for c in changes if c.value is not None]
            commits.check_commit(shard, shard.membership.rebalancer, request, ctx.api_version, partitions)
        except KafkaError as error:
            _refuse(accepted, error)
            return response

        def done(error: KafkaError | None) -> None:
            if error is not None:
                _refuse(accepted, error)
            ctx.respond(response)

        shard.write(changes, done)
        return None

    # -- OffsetFetch

    def offset_fetch(self, ctx: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse | None:
        """Offsets of one group or several."""
        version = ctx.api_version
        groups = request.groups if version >= FIRST_FETCH_VERSION_WITH_GROUPS else [_single_group(request)]
        results: list[FetchGroup | None] = [None] * len(groups)
        left = len(groups)

        def finish(index: int, result: FetchGroup) -> None:
            nonlocal left
            results[index] = result
            left -= 1
            if left == 0:
                ctx.respond(_fetch_response(version, [r for r in results if r is not None]))

        if not groups:
            return OffsetFetchResponse(groups=[])
        for i, group in enumerate(groups):
            self._fetch_group(version, group, partial(finish, i), require_stable=request.require_stable)
        return None

    def _fetch_group(
        self, version: int, group: FetchedGroup, finish: Callable[[FetchGroup], None], *, require_stable: bool
    ) -> None:
        try:
            shard = self._runtime.shard_of(group.group_id).machine
            commits.check_fetch(shard, group.group_id, group.member_id, group.member_epoch)
        except KafkaError as error:
            finish(_group_error(version, group, client_error(error)))
            return
        wanted, unknown = self._wanted(version, group)

        def read(error: KafkaError | None) -> None:
            if error is not None:
                code = client_error(error)
                if error.code == ErrorCode.REQUEST_TIMED_OUT:
                    code = ErrorCode.NOT_COORDINATOR
                finish(_group_error(version, group, code))
                return
            topics = commits.fetch(shard, group.group_id, wanted, require_stable=require_stable)
            if wanted is None and version >= FIRST_VERSION_WITH_TOPIC_IDS:
                topics = self._with_ids(topics)
            finish(FetchGroup(group_id=group.group_id, topics=topics + unknown))

        if require_stable:
            shard.after_writes(read)
        else:
            read(None)

    def _wanted(self, version: int, group: FetchedGroup) -> tuple[list[RequestedTopic] | None, list[commits.Topics]]:
        """The topics requested by name, and the answers for unknown ids."""
        if group.topics is None:
            return None, []
        wanted: list[RequestedTopic] = []
        unknown: list[commits.Topics] = []
        for topic in group.topics:
            if version < FIRST_VERSION_WITH_TOPIC_IDS:
                wanted.append(RequestedTopic(topic.name, ZERO_UUID, topic.partition_indexes))
                continue
            name = self._cluster.topic_name(topic.topic_id)
            if name is not None:
                wanted.append(RequestedTopic(name, topic.topic_id, topic.partition_indexes))
                continue
            partitions = [commits.no_offset(p, ErrorCode.UNKNOWN_TOPIC_ID) for p in topic.partition_indexes]
            unknown.append(commits.Topics(topic_id=topic.topic_id, partitions=partitions))
        return wanted, unknown

    def _with_ids(self, topics: list[commits.Topics]) -> list[commits.Topics]:
        """Add the ids of existing topics; drop other topics, which the client could not identify."""
        found = []
        for topic in topics:
            topic_id = self._cluster.topic_id(topic.name)
            if topic_id is not None:
                topic.topic_id = topic_id
                found.append(topic)
        return found

    # -- OffsetDelete

    def offset_delete(self, ctx: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse | None:
        """Remove offsets of topics that the group does not consume."""
        try:
            if not request.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
            shard = self._runtime.shard_of(request.group_id).machine
            group = commits.check_offset_delete(shard, request.group_id)
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=client_error(error))
        topics = []
        changes: list[Change] = []
        for topic in request.topics:
            if not topic.partitions and self._cluster.has_partition(topic.name, 0):
                continue  # no partitions are named; unknown topics are answered anyway
            subscribed = group is not None and group.is_subscribed_to(topic.name)
            partitions = []
            deletable = []
            for p in topic.partitions:
                code = ErrorCode.NONE
                if not self._cluster.has_partition(topic.name, p.partition_index):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif subscribed:
                    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                else:
                    deletable.append(p.partition_index)
                partitions.append(
                    OffsetDeleteResponse.OffsetDeleteResponsePartition(
                        partition_index=p.partition_index, error_code=code
                    )
                )
            changes += commits.offset_removals(shard, request.group_id, topic.name, deletable)
            topics.append(OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))

        def done(error: KafkaError | None) -> None:
            if error is not None:
                ctx.respond(OffsetDeleteResponse(error_code=client_error(error)))
            else:
                ctx.respond(OffsetDeleteResponse(topics=topics))

        shard.write(changes, done)
        return None


def _refuse(partitions: list[CommitPartition], error: KafkaError) -> None:
    code = client_error(error)
    for p in partitions:
        p.error_code = code


def _single_group(request: OffsetFetchRequest) -> FetchedGroup:
    """A request below version 8 in the newer form."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes)
            for t in request.topics
        ]
    return FetchedGroup(group_id=request.group_id, topics=topics)


def _group_error(version: int, group: FetchedGroup, code: ErrorCode) -> FetchGroup:
    if version >= FIRST_FETCH_VERSION_WITH_GROUP_ERROR:
        return FetchGroup(group_id=group.group_id, topics=[], error_code=code)
    topics = [
        commits.Topics(name=t.name, partitions=[commits.no_offset(p, code) for p in t.partition_indexes])
        for t in group.topics or []
    ]
    return FetchGroup(group_id=group.group_id, topics=topics, error_code=code)


def _fetch_response(version: int, groups: list[FetchGroup]) -> OffsetFetchResponse:
    if version >= FIRST_FETCH_VERSION_WITH_GROUPS:
        return OffsetFetchResponse(groups=groups)
    group = groups[0]
    topics = [
        OffsetFetchResponse.OffsetFetchResponseTopic(
            name=t.name,
            partitions=[
                OffsetFetchResponse.OffsetFetchResponsePartition(
                    partition_index=p.partition_index,
                    committed_offset=p.committed_offset,
                    committed_leader_epoch=p.committed_leader_epoch,
                    metadata=p.metadata,
                    error_code=p.error_code,
                )
                for p in t.partitions
            ],
        )
        for t in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)
