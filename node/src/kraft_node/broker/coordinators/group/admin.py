"""ListGroups (0-5), DescribeGroups (0-6) and DeleteGroups (0-2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.long_answers import answer
from kraft_node.broker.coordinators.group.classic import ClassicGroup, ClassicState
from kraft_node.broker.coordinators.group.consumer.group import GroupState
from kraft_node.broker.coordinators.group.records import CONSUMER, Change, OffsetChange
from kraft_node.broker.coordinators.runtime.failures import client_error
from kraft_node.broker.coordinators.runtime.shard import Phase
from kraft_protocol.errors import ErrorCode, KafkaError, fitting
from kraft_protocol.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from kraft_node.base.request import RequestContext
    from kraft_node.base.turns import Turns
    from kraft_node.broker.coordinators.group.member import ClassicGroupMember
    from kraft_node.broker.coordinators.group.shard import Shard
    from kraft_node.broker.coordinators.runtime.engine import Runtime

CLASSIC: Final = "classic"
FIRST_DESCRIBE_VERSION_NAMING_MISSING_GROUP: Final = 6
FIRST_DESCRIBE_VERSION_WITH_OPERATIONS: Final = 3
GROUPS_A_STEP: Final = 200
GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: all operations on a group."""
OPERATIONS_NOT_ASKED: Final = -(1 << 31)

Described = DescribeGroupsResponse.DescribedGroup


class AdminApi:
    """Handlers of the three requests."""

    __slots__ = ("_runtime", "_turns")

    def __init__(self, runtime: Runtime[Shard], turns: Turns) -> None:
        self._runtime = runtime
        self._turns = turns

    def list_groups(
        self, ctx: RequestContext, request: ListGroupsRequest, sees: Callable[[str], bool] = lambda _: True
    ) -> ListGroupsResponse | None:
        """The visible groups that are coordinated here, filtered by state and type; filters ignore case."""
        return answer(self._turns, ctx, request, self._listed(request, sees))  # type: ignore[no-any-return]

    def _listed(self, request: ListGroupsRequest, sees: Callable[[str], bool]) -> Generator[None, None, Any]:
        states: set[str] = set()
        types: set[str] = set()
        for filters, asked in ((states, request.states_filter), (types, request.types_filter)):
            for start in range(0, len(asked), GROUPS_A_STEP):
                filters.update(text.strip().lower() for text in asked[start : start + GROUPS_A_STEP])
                yield
        listed = []
        number = 0
        for shard in list(self._runtime.shards.values()):
            if shard.phase is Phase.LOADING:
                return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            for group_id, protocol_type, state, group_type in _summaries(shard.machine):
                number += 1
                if number % GROUPS_A_STEP == 0:
                    yield
                if states and state.lower() not in states:
                    continue
                if types and group_type.lower() not in types:
                    continue
                if sees(group_id):
                    listed.append(
                        ListGroupsResponse.ListedGroup(
                            group_id=group_id, protocol_type=protocol_type, group_state=state, group_type=group_type
                        )
                    )
        return ListGroupsResponse(groups=listed)

    def describe_groups(self, ctx: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        """State and members of classic groups."""
        version = ctx.api_version
        wants_operations = version >= FIRST_DESCRIBE_VERSION_WITH_OPERATIONS and request.include_authorized_operations
        groups = []
        for group_id in request.groups:
            try:
                described = _describe(self._runtime.shard_of(group_id).machine, group_id, version)
            except KafkaError as error:
                described = Described(error_code=client_error(error), group_id=group_id)
            if wants_operations and described.error_code == ErrorCode.NONE:
                described.authorized_operations = GROUP_OPERATIONS
            groups.append(described)
        return DescribeGroupsResponse(groups=groups)

    def delete_groups(self, ctx: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse | None:
        """Remove empty groups with their offsets."""
        results = {}
        by_shard: dict[int, tuple[Shard, list[str], list[Change]]] = {}
        for group_id in dict.fromkeys(request.groups_names):
            result = results[group_id] = DeleteGroupsResponse.DeletableGroupResult(group_id=group_id)
            try:
                shard = self._runtime.shard_of(group_id).machine
                changes = _removal(shard, group_id)
            except KafkaError as error:
                result.error_code = client_error(error)
                continue
            _, ids, all_changes = by_shard.setdefault(shard.partition, (shard, [], []))
            ids.append(group_id)
            all_changes += changes
        response = DeleteGroupsResponse(results=list(results.values()))
        left = len(by_shard)

        def done_for(ids: list[str], error: KafkaError | None) -> None:
            nonlocal left
            if error is not None:
                for group_id in ids:
                    results[group_id].error_code = client_error(error)
            left -= 1
            if left == 0:
                ctx.respond(response)

        if not by_shard:
            return response
        for shard, ids, changes in by_shard.values():
            shard.write_all(changes, lambda error, ids=ids: done_for(ids, error))  # type: ignore[misc]
        return None


def _summaries(shard: Shard) -> Iterator[tuple[str, str, str, str]]:
    """Group id, protocol type, state and group type of all groups; groups of other types have no members here."""
    for group in list(shard.groups.values()):
        yield group.group_id, group.protocol_type or "", group.state.value, CLASSIC
    for consumer in list(shard.consumers.values()):
        yield consumer.group_id, CONSUMER, consumer.state.value, CONSUMER
    for group_id, foreign in list(shard.foreign.items()):
        yield group_id, foreign.kind, ClassicState.EMPTY.value, foreign.kind


def _describe(shard: Shard, group_id: str, version: int) -> Described:
    group = shard.groups.get(group_id)
    if group is None:
        described = Described(group_id=group_id, group_state=ClassicState.DEAD.value)
        if version >= FIRST_DESCRIBE_VERSION_NAMING_MISSING_GROUP:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            missing = not shard.exists(group_id)
            described.error_message = fitting(
                f"Group {group_id} {'not found' if missing else 'is not a classic group'}."
            )
        return described
    return Described(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if group.state is ClassicState.STABLE else "",
        members=[_describe_member(group, member) for member in group.members.values()],
    )


def _describe_member(group: ClassicGroup, member: ClassicGroupMember) -> DescribeGroupsResponse.DescribedGroupMember:
    stable = group.state is ClassicState.STABLE
    return DescribeGroupsResponse.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.protocols.get(group.protocol or "", b"") if stable else b"",
        member_assignment=member.assignment,
    )


def _removal(shard: Shard, group_id: str) -> list[Change]:
    """Tombstones for the group and its offsets. Raises GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""
    group = shard.groups.get(group_id) or shard.consumers.get(group_id)
    if group is None and group_id not in shard.foreign:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} not found")
    if group is not None and group.state not in {ClassicState.EMPTY, GroupState.EMPTY}:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id} is {group.state.value}")
    offsets: list[Change] = [OffsetChange(group_id, topic, p, None) for topic, p in shard.offsets.keys(group_id)]
    return offsets + shard.removal_of(group_id)
