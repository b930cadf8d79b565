"""Why a group is not stable, by the state of its coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.broker.coordinators.group.classic import ClassicState
from kraft_node.broker.coordinators.group.consumer.group import GroupState
from kraft_node.broker.coordinators.runtime.shard import Phase, RuntimeShard
from kraft_protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraft_node.broker.coordinators.group.shard import Shard
    from kraft_node.partition.partition import Partition
    from kraft_node.testing.machine import SimMachine


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


def unstable(shard: Shard, group: str, partitions: int) -> str | None:
    """Why the group, which has members, is not stable; None if it is."""
    consumers = shard.consumers.get(group)
    if consumers is None:
        classic = shard.groups.get(group)
        if classic is None or classic.state is not ClassicState.STABLE:
            return f"{group} is {'missing' if classic is None else classic.state.value}"
        return None
    if consumers.state is not GroupState.STABLE:
        held = {member: current.epoch for member, current in consumers.current.items()}
        return f"{group} is {consumers.state.value} at {consumers.epoch}, target {consumers.target_epoch.epoch}: {held}"
    owned = sum(len(numbers) for numbers in consumers.owners.values())
    return None if owned == partitions else f"the members of {group} own {owned} of {partitions} partitions"
