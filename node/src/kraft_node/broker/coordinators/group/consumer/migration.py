"""Turns a classic group into a consumer group and back while it has members (`group.consumer.migration.policy`).

Both ways are records only: the tombstones of the old group and the records of the new one, in one batch.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from kraft_node.broker.coordinators.group.classic import CONSUMER_PROTOCOL, ClassicGroup, ClassicState
from kraft_node.broker.coordinators.group.consumer import embedded, leaving
from kraft_node.broker.coordinators.group.consumer.changes import (
    ConsumerChange,
    CurrentChange,
    EpochChange,
    GroupEpoch,
    MemberChange,
    TargetChange,
    TargetEpoch,
    TargetEpochChange,
)
from kraft_node.broker.coordinators.group.consumer.group import FIRST_EPOCH
from kraft_node.broker.coordinators.group.consumer.heartbeat import hash_of
from kraft_node.broker.coordinators.group.consumer.member import (
    ClassicProtocol,
    ClassicSide,
    Current,
    Held,
    MemberData,
    MemberState,
)
from kraft_node.broker.coordinators.group.member import ClassicGroupMember as ClassicMember
from kraft_node.broker.coordinators.group.records import Change, GroupChange, group_snapshot
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.broker.coordinators.group.config import GroupConfig
    from kraft_node.broker.coordinators.group.consumer.group import ConsumerGroup
    from kraft_node.broker.coordinators.group.consumer.rules import GroupTopicsView

log = logging.getLogger(__name__)

UPGRADING: Final = frozenset(("bidirectional", "upgrade"))
DOWNGRADING: Final = frozenset(("bidirectional", "downgrade"))


def check_upgrade(group: ClassicGroup, config: GroupConfig) -> None:
    """Raise KafkaError GROUP_ID_NOT_FOUND unless a classic group with members may become a consumer group."""
    if config.migration_policy not in UPGRADING:
        raise _cannot(group.group_id, "online upgrade is disabled.")
    if not group.uses_consumer_protocol:
        raise _cannot(group.group_id, "the group does not use the consumer embedded protocol.")
    if len(group.members) > config.consumer_max_size:
        raise _cannot(group.group_id, "the group size exceeds the consumer group maximum size.")


def upgraded(group: ClassicGroup, topics: GroupTopicsView) -> list[ConsumerChange]:
    """The records of the consumer group that continues a classic one: every member keeps its partitions.

    Raises KafkaError GROUP_ID_NOT_FOUND if a member uses a custom assignor, or another protocol.
    """
    name, epoch = group.group_id, max(group.generation, FIRST_EPOCH)
    members: list[MemberData] = []
    held: dict[str, Held] = {}
    for classic in group.members.values():
        try:
            member, held[classic.member_id] = _upgraded_member(group, classic, topics)
        except ValueError as error:
            log.warning("group cannot become a consumer group group=%s error=%s", name, error)
            raise _cannot(name, "the embedded consumer protocol is malformed.") from None
        members.append(member)
    hashed = hash_of({topic for member in members for topic in member.names}, topics)
    changes: list[ConsumerChange] = [MemberChange(name, member.member_id, member) for member in members]
    changes.append(EpochChange(name, GroupEpoch(epoch, hashed)))
    for member in members:
        target = {topic: frozenset(numbers) for topic, numbers in held[member.member_id].items()}
        changes.append(TargetChange(name, member.member_id, target))
    changes.append(TargetEpochChange(name, TargetEpoch(epoch, 0)))
    for member in members:
        current = Current(epoch, epoch, MemberState.STABLE, held[member.member_id])
        changes.append(CurrentChange(name, member.member_id, current))
    return changes


def _upgraded_member(group: ClassicGroup, classic: ClassicMember, topics: GroupTopicsView) -> tuple[MemberData, Held]:
    metadata = classic.protocols.get(group.protocol or "", next(iter(classic.protocols.values())))
    subscription = embedded.read_subscription(metadata)
    assigned, user_data = embedded.read_assignment(classic.assignment)
    if user_data:
        raise _cannot(
            group.group_id,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade.",
        )
    held = {}
    for topic, numbers in assigned.items():
        topic_id = topics.topic_id(topic)
        if topic_id is not None and numbers:
            held[topic_id] = dict.fromkeys(numbers, max(group.generation, FIRST_EPOCH))
    member = MemberData(
        classic.member_id,
        classic.instance_id,
        subscription.rack_id,
        classic.client_id,
        classic.client_host,
        subscription.topics,
        rebalance_timeout_ms=classic.rebalance_timeout_ms,
        classic=classic_side(classic.session_timeout_ms, classic.protocols),
    )
    return member, held


def classic_side(session_timeout_ms: int, protocols: dict[str, bytes]) -> ClassicSide:
    """What is kept of a classic member."""
    return ClassicSide(session_timeout_ms, tuple(ClassicProtocol(name, raw) for name, raw in protocols.items()))


def may_downgrade(group: ConsumerGroup, without: Collection[str], config: GroupConfig) -> bool:
    """Whether the group becomes a classic one once the members `without` have left: only classic members stay."""
    staying = [member for member_id, member in group.members.items() if member_id not in without]
    return (
        config.migration_policy in DOWNGRADING
        and bool(staying)
        and all(member.classic is not None for member in staying)
        and len(staying) <= config.max_size
    )


def downgraded(group: ConsumerGroup, without: Collection[str], topics: GroupTopicsView, now_ms: int) -> list[Change]:
    """The records of the classic group that continues a consumer group with its classic members."""
    classic = ClassicGroup(
        group.group_id, now_ms, state=ClassicState.STABLE, generation=group.epoch, protocol_type=CONSUMER_PROTOCOL
    )
    assignments = {}
    for member_id, member in group.members.items():
        if member_id not in without:
            classic.add(_downgraded_member(member))
            assignments[member_id] = assignment_of(group, member, topics)
    classic.protocol = classic.select_protocol()
    snapshot: GroupChange = group_snapshot(classic, assignments)
    return [*leaving.removal(group), snapshot]


def _downgraded_member(member: MemberData) -> ClassicMember:
    assert member.classic is not None, f"law: {member.member_id} uses the classic protocol"
    return ClassicMember(
        member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocol_type=CONSUMER_PROTOCOL,
        protocols={protocol.name: protocol.metadata for protocol in member.classic.protocols},
    )


def assignment_of(group: ConsumerGroup, member: MemberData, topics: GroupTopicsView) -> bytes:
    """The assignment in the form for a classic member; deleted topics are left out."""
    assert member.classic is not None, f"law: {member.member_id} uses the classic protocol"
    named = {}
    for topic_id, numbers in group.holds(member.member_id).assigned.items():
        name = topics.topic_name(topic_id)
        if name is not None:
            named[name] = sorted(numbers)
    version = embedded.read_subscription(member.classic.protocols[0].metadata).version
    return embedded.write_assignment(named, version)


def _cannot(group_id: str, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group_id} to consumer group because {why}"
    )
