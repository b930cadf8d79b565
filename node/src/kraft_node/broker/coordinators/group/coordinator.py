"""The group coordinator: takes requests, finds the shard, and answers. One instance per broker.

The broker uses it: `handlers` are part of its table. `on_leader` and `on_resign` follow the leadership of
`__consumer_offsets`, `on_topics_deleted` the metadata, `on_transaction_marker` the markers in its partitions.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraft_node.broker.coordinators.group import expiry
from kraft_node.broker.coordinators.group.admin import AdminApi
from kraft_node.broker.coordinators.group.answers import client_error, join_error
from kraft_node.broker.coordinators.group.classic import State
from kraft_node.broker.coordinators.group.loader import Loader
from kraft_node.broker.coordinators.group.locate import OFFSETS_TOPIC, Locator
from kraft_node.broker.coordinators.group.membership import Membership
from kraft_node.broker.coordinators.group.offset_api import OffsetApi
from kraft_node.broker.coordinators.group.shard import Phase, Shard
from kraft_node.broker.coordinators.partitioning import partition_for
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from kraft_node.base.env import Clock, Rng, Scheduler, Timer
    from kraft_node.base.request import RequestContext
    from kraft_node.base.turns import Turns
    from kraft_node.broker.coordinators.group.config import GroupConfig
    from kraft_node.broker.coordinators.group.seams import ClusterView, GroupStore
    from kraft_protocol.ids import Uuid

log = logging.getLogger(__name__)

FIRST_LEAVE_VERSION_WITH_MEMBERS: Final = 3
FIRST_SYNC_VERSION_WITH_PROTOCOL: Final = 5


class GroupCoordinator:
    """The groups of all partitions of `__consumer_offsets` that this broker leads."""

    def __init__(
        self,
        *,
        clock: Clock,
        scheduler: Scheduler,
        rng: Rng,
        store: GroupStore,
        cluster: ClusterView,
        config: GroupConfig,
        turns: Turns,
    ) -> None:
        """`turns`: runs answers about very many groups in steps."""
        self._clock = clock
        self._scheduler = scheduler
        self._rng = rng
        self._store = store
        self._cluster = cluster
        self.config = config
        self.shards: dict[int, Shard] = {}
        self._members: dict[int, Membership] = {}
        self._expiry_timers: dict[int, Timer] = {}
        offsets, admin, locator = OffsetApi(self, cluster), AdminApi(self, turns), Locator(cluster, config)
        self.handlers: dict[ApiKey, Callable[[RequestContext, Any], Any]] = {
            ApiKey.FIND_COORDINATOR: locator.find_coordinator,
            ApiKey.JOIN_GROUP: self.join_group,
            ApiKey.SYNC_GROUP: self.sync_group,
            ApiKey.HEARTBEAT: self.heartbeat,
            ApiKey.LEAVE_GROUP: self.leave_group,
            ApiKey.OFFSET_COMMIT: offsets.offset_commit,
            ApiKey.OFFSET_FETCH: offsets.offset_fetch,
            ApiKey.OFFSET_DELETE: offsets.offset_delete,
            ApiKey.LIST_GROUPS: admin.list_groups,
            ApiKey.DESCRIBE_GROUPS: admin.describe_groups,
            ApiKey.DELETE_GROUPS: admin.delete_groups,
        }

    # -- leadership

    def on_leader(self, partition: int, epoch: int) -> None:
        """This broker leads the partition since `epoch`: load it.

        If it led before, no other broker can have written meanwhile (that would have been a resignation). Then the
        loaded state stays, and only a failed load is retried.
        """
        old = self.shards.get(partition)
        if old is not None:
            old.epoch = max(old.epoch, epoch)
            if old.phase is not Phase.FAILED:
                return
            self.on_resign(partition)
        shard = Shard(
            partition,
            epoch,
            store=self._store,
            config=self.config,
            clock=self._clock,
            scheduler=self._scheduler,
            rng=self._rng,
        )
        self.shards[partition] = shard
        self._members[partition] = Membership(shard)
        Loader(shard, lambda error: self._loaded(shard, error)).start()

    def on_resign(self, partition: int) -> None:
        """This broker no longer leads the partition, or it was deleted: drop its state and refuse waiting requests."""
        shard = self.shards.pop(partition, None)
        if shard is None:
            return
        self._members.pop(partition)
        timer = self._expiry_timers.pop(partition, None)
        if timer is not None:
            timer.cancel()
        shard.close()
        log.info("Partition %d of %s: no longer coordinated here", partition, OFFSETS_TOPIC)

    def shutdown(self) -> None:
        """Resign from everything."""
        for partition in list(self.shards):
            self.on_resign(partition)

    def _loaded(self, shard: Shard, error: Exception | None) -> None:
        if error is not None:
            log.error("Partition %d of %s could not be loaded: %s", shard.partition, OFFSETS_TOPIC, error)
            shard.close(Phase.FAILED)
            return
        shard.activate()
        self._members[shard.partition].rebalancer.resume()
        self._schedule_expiry(shard)

    # -- other events

    def on_topics_deleted(self, topics: Iterable[tuple[str, Uuid]]) -> None:
        """Drop the offsets of deleted topics."""
        deleted = dict(topics)
        if deleted:
            for shard in list(self.shards.values()):
                shard.sweep(partial(expiry.of_deleted_topics, shard, deleted))

    def on_transaction_marker(self, partition: int, offset: int, producer_id: int, *, commit: bool) -> None:
        """A transaction marker was written to the partition at `offset`: apply or drop the transaction's offsets."""
        shard = self.shards.get(partition)
        if shard is not None and shard.phase is Phase.ACTIVE:
            shard.transaction_ended(offset, producer_id, commit=commit)

    def _schedule_expiry(self, shard: Shard) -> None:
        interval = self.config.offsets_retention_check_interval_ms
        self._expiry_timers[shard.partition] = self._scheduler.call_later(interval, self._expire, shard)

    def _expire(self, shard: Shard) -> None:
        shard.sweep(partial(expiry.expired, shard))
        self._schedule_expiry(shard)

    def gauges(self) -> dict[str, int]:
        """The numbers of offsets and groups, under the names of Kafka's GroupMetadataManager metrics."""
        states = Counter(g.state for shard in self.shards.values() for g in shard.groups.values())
        return {
            "NumOffsets": sum(shard.offsets.count for shard in self.shards.values()),
            "NumGroups": sum(states.values()),
            **{f"NumGroups{state.value}": states[state] for state in State},
        }

    # -- finding

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds the group."""
        count = self._cluster.partition_count(OFFSETS_TOPIC) or self.config.offsets_topic_partitions
        return partition_for(group_id, count)

    def shard_of(self, group_id: str) -> Shard:
        """The shard of the group, if it is loaded.

        Raises KafkaError NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        partition = self.partition_of(group_id)
        shard = self.shards.get(partition)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"group {group_id} is not coordinated here")
        shard.check()
        return shard

    def members_of(self, group_id: str) -> Membership:
        """The membership requests of the group's shard. Raises like `shard_of`, INVALID_GROUP_ID for an empty id."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        return self._members[self.shard_of(group_id).partition]

    def membership(self, shard: Shard) -> Membership:
        """The membership requests of a shard that `shard_of` returned."""
        return self._members[shard.partition]

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    # -- membership requests

    def join_group(self, ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse | None:
        """JoinGroup 0-9."""
        timeout = request.session_timeout_ms
        if request.group_id and not self.config.min_session_timeout_ms <= timeout <= self.config.max_session_timeout_ms:
            return join_error(ctx.api_version, ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        try:
            return self.members_of(request.group_id).join(ctx, request)
        except KafkaError as error:
            return join_error(ctx.api_version, client_error(error), request.member_id)

    def sync_group(self, ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse | None:
        """SyncGroup 0-5; from 5 the protocol must be named (KIP-559)."""
        if ctx.api_version >= FIRST_SYNC_VERSION_WITH_PROTOCOL and None in {
            request.protocol_type,
            request.protocol_name,
        }:
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        try:
            return self.members_of(request.group_id).sync(ctx, request)
        except KafkaError as error:
            return SyncGroupResponse(error_code=client_error(error))

    def heartbeat(self, _ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        """Heartbeat 0-4. While the partition loads, members get a success: their sessions begin after the load."""
        try:
            return self.members_of(request.group_id).heartbeat(request)
        except KafkaError as error:
            if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return HeartbeatResponse()
            return HeartbeatResponse(error_code=client_error(error))

    def leave_group(self, ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """LeaveGroup 0-5; before 3 one member, whose error is the top-level error."""
        batched = ctx.api_version >= FIRST_LEAVE_VERSION_WITH_MEMBERS
        members = request.members if batched else [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
        try:
            results = self.members_of(request.group_id).leave(request.group_id, members)
        except KafkaError as error:
            return LeaveGroupResponse(error_code=client_error(error))
        if batched:
            return LeaveGroupResponse(members=results)
        return LeaveGroupResponse(error_code=results[0].error_code)
