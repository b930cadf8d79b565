"""Why a group is not stable, by the state of its coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from kraft_node.broker.coordinators.group.classic import ClassicState
from kraft_node.broker.coordinators.group.consumer.group import GroupState
from kraft_node.broker.coordinators.runtime.shard import Phase, RuntimeShard
from kraft_protocol.errors import KafkaError
from kraft_protocol.ids import Uuid, uuid_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kraft_node.broker.coordinators.group.shard import Shard
    from kraft_node.metadata.partitions import Topic
    from kraft_node.partition.partition import Partition
    from kraft_node.testing.machine import SimMachine

Held: TypeAlias = tuple[Uuid, int]
"""The id of a topic and the number of a partition."""


def coordinating(
    machine: SimMachine, group: str, newest_epoch: Callable[[Partition], int]
) -> RuntimeShard[Shard] | None:
    """The machine's part of the coordinator, if it has the group and no later leader was elected."""
    broker = None if machine.node is None else machine.node.broker
    if broker is None:
        return None
    runtime = broker.groups.runtime
    shard = runtime.shards.get(runtime.partition_of(group))
    if shard is None or shard.phase is not Phase.ACTIVE:
        return None
    try:
        leader = broker.replicas.leader(runtime.config.topic, shard.partition)
    except KafkaError:
        return None
    return shard if newest_epoch(leader) <= shard.epoch else None


def existing(topics: Iterable[Topic], names: Iterable[str]) -> dict[Held, str]:
    """The partitions of the topics with these names, with a name for messages."""
    wanted = frozenset(names)
    return {
        (topic.id, number): f"{topic.name}-{number}"
        for topic in topics
        if topic.name in wanted
        for number in range(len(topic))
    }


def unstable(shard: Shard, group: str, partitions: Mapping[Held, str]) -> str | None:
    """Why the group, which has members, is not stable; None if it is. Its members read exactly these partitions."""
    consumers = shard.consumers.get(group)
    if consumers is None:
        classic = shard.groups.get(group)
        if classic is None or classic.state is not ClassicState.STABLE:
            return f"{group} is {'missing' if classic is None else classic.state.value}"
        return None
    if consumers.state is not GroupState.STABLE:
        held = {member: current.epoch for member, current in consumers.current.items()}
        return f"{group} is {consumers.state.value} at {consumers.epoch}, target {consumers.target_epoch.epoch}: {held}"
    owned = {(topic, number) for topic, numbers in consumers.owners.items() for number in numbers}
    free = sorted(name for held, name in partitions.items() if held not in owned)
    gone = sorted(f"{uuid_text(topic)}-{number}" for topic, number in owned - partitions.keys())
    if free or gone:
        return f"the members of {group} lack {free}, and own {gone}, which do not exist"
    return None
