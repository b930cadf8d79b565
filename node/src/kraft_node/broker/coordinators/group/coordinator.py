"""The group coordinator: takes requests, finds the shard, and answers. One instance per broker.

The broker uses it: `handlers` are part of its table. `on_leader` and `on_resign` follow the leadership of
`__consumer_offsets`, `on_topics_deleted` the metadata. `runtime` loads and stores the groups.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraft_node.broker.coordinators.group import expiry
from kraft_node.broker.coordinators.group.admin import AdminApi
from kraft_node.broker.coordinators.group.answers import join_error
from kraft_node.broker.coordinators.group.classic import ClassicState
from kraft_node.broker.coordinators.group.consumer.api import ConsumerGroupApi
from kraft_node.broker.coordinators.group.consumer.services import ConsumerServices, GroupTimes
from kraft_node.broker.coordinators.group.locate import OFFSETS_TOPIC, Locator
from kraft_node.broker.coordinators.group.membership import Membership
from kraft_node.broker.coordinators.group.offset_api import OffsetApi
from kraft_node.broker.coordinators.group.shard import Shard
from kraft_node.broker.coordinators.group.txn_commits import TxnCommitApi
from kraft_node.broker.coordinators.runtime.engine import Runtime
from kraft_node.broker.coordinators.runtime.failures import client_error
from kraft_node.broker.coordinators.runtime.shard import Phase, RuntimeConfig
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
    from kraft_node.base.env import Background, Clock, Rng, Scheduler
    from kraft_node.base.request import RequestContext
    from kraft_node.base.turns import Turns
    from kraft_node.broker.coordinators.group.config import GroupConfig
    from kraft_node.broker.coordinators.group.seams import ClusterView, Transactions
    from kraft_node.broker.coordinators.runtime.seams import PartitionLogs
    from kraft_protocol.ids import Uuid

log = logging.getLogger(__name__)

FIRST_LEAVE_VERSION_WITH_MEMBERS: Final = 3
FIRST_SYNC_VERSION_WITH_PROTOCOL: Final = 5
NAMES_COMPARED: Final = 100
"""If more topics change at once, every consumer group looks at its topics again."""


class GroupCoordinator:
    """The groups of all partitions of `__consumer_offsets` that this broker leads."""

    def __init__(
        self,
        *,
        clock: Clock,
        scheduler: Scheduler,
        rng: Rng,
        store: PartitionLogs,
        cluster: ClusterView,
        config: GroupConfig,
        turns: Turns,
        background: Background,
        transactions: Transactions,
        times: Callable[[str], GroupTimes] | None = None,
        has_consumer_groups: Callable[[], bool] = lambda: True,
    ) -> None:
        """`turns`: runs answers about very many groups in steps. `background`: runs own assignors. `times(group_id)`:
        the times of a consumer group; None: the times of `config`. `has_consumer_groups()`: whether consumer groups may
        be used.
        """
        self._cluster = cluster
        self.config = config
        of_broker = GroupTimes(*config.consumer_times)
        self.services = ConsumerServices(config, cluster, times or (lambda _: of_broker), turns, background)
        self.runtime: Runtime[Shard] = Runtime(
            RuntimeConfig(OFFSETS_TOPIC, config.commit_timeout_ms, config.append_linger_ms),
            clock=clock,
            scheduler=scheduler,
            store=store,
            make=partial(Shard, config=config, rng=rng, services=self.services),
            partitions=self._partitions,
        )
        self.on_leader = self.runtime.on_leader
        self.on_resign = self.runtime.on_resign
        self.shutdown = self.runtime.shutdown
        consumers = ConsumerGroupApi(self.runtime, self.services, has_consumer_groups)
        offsets = OffsetApi(self.runtime, cluster, config, clock)
        txn_offsets = TxnCommitApi(self.runtime, cluster, config, clock, transactions)
        admin, locator = AdminApi(self.runtime, turns), Locator(cluster, config)
        self.handlers: dict[ApiKey, Callable[[RequestContext, Any], Any]] = {
            ApiKey.FIND_COORDINATOR: locator.find_coordinator,
            ApiKey.JOIN_GROUP: self.join_group,
            ApiKey.SYNC_GROUP: self.sync_group,
            ApiKey.HEARTBEAT: self.heartbeat,
            ApiKey.LEAVE_GROUP: self.leave_group,
            ApiKey.OFFSET_COMMIT: offsets.offset_commit,
            ApiKey.OFFSET_FETCH: offsets.offset_fetch,
            ApiKey.OFFSET_DELETE: offsets.offset_delete,
            ApiKey.TXN_OFFSET_COMMIT: txn_offsets.txn_offset_commit,
            ApiKey.LIST_GROUPS: admin.list_groups,
            ApiKey.DESCRIBE_GROUPS: admin.describe_groups,
            ApiKey.DELETE_GROUPS: admin.delete_groups,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: consumers.heartbeat,
            ApiKey.CONSUMER_GROUP_DESCRIBE: consumers.describe,
        }

    @property
    def shards(self) -> dict[int, Shard]:
        """The state machines by partition, in every phase."""
        return {partition: shard.machine for partition, shard in self.runtime.shards.items()}

    # -- events

    def on_topics_deleted(self, topics: Iterable[tuple[str, Uuid]]) -> None:
        """Drop the offsets of deleted topics."""
        deleted = dict(topics)
        if deleted:
            for shard in list(self.shards.values()):
                if shard.phase is Phase.ACTIVE:
                    shard.sweep(partial(expiry.of_deleted_topics, shard, deleted))

    def on_topics_changed(self, names: Collection[str], *, created: bool) -> None:
        """Topics were made, deleted or altered: consumer groups may need another target."""
        self.services.topics.changed(names, created=created)
        many = len(names) > NAMES_COMPARED
        for shard in self.shards.values():
            for group in shard.consumers.values():
                if many or any(group.is_subscribed_to(name) for name in names):
                    group.needs_refresh = True

    def on_metadata_reloaded(self) -> None:
        """Everything may have changed."""
        self.services.topics.reset()

    def gauges(self) -> dict[str, int]:
        """The numbers of offsets and groups, under the names of Kafka's GroupMetadataManager metrics."""
        states = Counter(g.state for shard in self.shards.values() for g in shard.groups.values())
        return {
            "NumOffsets": sum(shard.offsets.count for shard in self.shards.values()),
            "NumGroups": sum(states.values()),
            **{f"NumGroups{state.value}": states[state] for state in ClassicState},
        }

    # -- finding

    def _partitions(self) -> int:
        return self._cluster.partition_count(OFFSETS_TOPIC) or self.config.offsets_topic_partitions

    def shard_of(self, group_id: str) -> Shard:
        """The shard of the group, if it is loaded.

        Raises KafkaError NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self.runtime.shard_of(group_id).machine

    def members_of(self, group_id: str) -> Membership:
        """The membership requests of the group's shard. Raises like `shard_of`, INVALID_GROUP_ID for an empty id."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        return self.shard_of(group_id).membership

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

    def leave_group(self, ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse | None:
        """LeaveGroup 0-5; before 3 a single member, and its error is the top-level error.

        The answer waits for the commit: otherwise a crash could bring a member back that believes it has left.
        """
        batched = ctx.api_version >= FIRST_LEAVE_VERSION_WITH_MEMBERS
        members = request.members if batched else [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
        try:
            membership = self.members_of(request.group_id)
            results = membership.leave(request.group_id, members)
        except KafkaError as error:
            return LeaveGroupResponse(error_code=client_error(error))
        if batched:
            response = LeaveGroupResponse(members=results)
        else:
            response = LeaveGroupResponse(error_code=results[0].error_code)
        at_once: list[LeaveGroupResponse] = []
        waits = False

        def written(error: KafkaError | None) -> None:
            answer = response if error is None else LeaveGroupResponse(error_code=client_error(error))
            if waits:
                ctx.respond(answer)
            else:
                at_once.append(answer)

        membership.shard.after_writes(written)
        waits = True
        return at_once[0] if at_once else None
