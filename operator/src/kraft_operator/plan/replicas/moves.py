"""Replica moves: first the wanted number of replicas, then off brokers that leave, else balancing.

A bounded number of partitions moves at once, throttled if the specification requests it. Moves do not disrupt: ISRs
only grow while replicas are added.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from kraft_operator.plan.gates import partitions_known
from kraft_operator.plan.model.observed import Metadata
from kraft_operator.plan.model.record import PREPARING
from kraft_operator.plan.model.situation import Situation
from kraft_operator.plan.model.steps import Reassign, Remember, Throttle
from kraft_operator.plan.model.values import same
from kraft_operator.plan.nodes.volumes import rates
from kraft_operator.plan.replicas.balance import balanced, spread
from kraft_operator.plan.replicas.drain import departing, moves_of
from kraft_operator.plan.replicas.load import by_load
from kraft_operator.plan.replicas.resize import resized

RATES: Final = ("follower.replication.throttled.rate", "leader.replication.throttled.rate")


def throttles(s: Situation) -> Mapping[str, str]:
    """Throttle rates as dynamic values while replicas move; else empty."""
    busy = s.metadata is not None and (s.moves or any(partition.moving for partition in s.metadata.partitions))
    found = dict.fromkeys(RATES, str(s.wanted.drain_bytes)) if busy and s.wanted.drain_bytes else {}
    return {**found, **rates(s)}


def move(s: Situation) -> None:
    """Plan the next moves. The throttle is set before them and removed after them."""
    leaving = _leaving(s)
    unknown = partitions_known(s)
    if unknown is not None and leaving:
        s.plan.block(unknown.reason, f"{unknown.message}: brokers {sorted(leaving)} stay")
    if s.metadata is None:
        return
    if s.wanted.hibernated:
        return
    moving = sum(partition.moving for partition in s.metadata.partitions)
    room = s.wanted.drain_at_once - moving
    s.moves = _next(s, s.metadata, leaving, room, moving)
    topics = {topic for topic, _ in s.moves}
    if s.wanted.drain_bytes and topics - s.metadata.throttled:
        s.plan.steps.append(Throttle(tuple(sorted(topics - s.metadata.throttled)), on=True))
    # `planner` sets the rates as dynamic values in this or an earlier pass. Moves begin once the rates are in force.
    if s.moves and _throttled(s, s.metadata):
        s.plan.steps.append(Reassign(s.moves))
    if s.metadata.throttled and not moving and not s.moves:
        s.plan.steps.append(Throttle(tuple(sorted(s.metadata.throttled)), on=False))


def _leaving(s: Situation) -> set[int]:
    """Brokers that must lose all replicas: nodes that leave, and brokers outside if the migration wants it."""
    found = {node.id for node in departing(s)}
    if s.wanted.outside_leave and s.metadata is not None and s.record.migration not in {"", PREPARING}:
        hosts = {broker for partition in s.metadata.partitions for broker in partition.replicas}
        found |= {i for i in hosts | s.metadata.brokers.keys() if s.outside(i)}
    return found


def _next(
    s: Situation, metadata: Metadata, leaving: set[int], room: int, moving: int
) -> dict[tuple[str, int], tuple[int, ...]]:
    """The next moves. Replica counts change first, because fewer replicas may be what lets a broker leave."""
    moves = resized(s, metadata, [i for i in _takers(s, leaving) if s.up(i)], room) if s.wanted.topic_replicas else {}
    if moves:
        return moves
    if leaving:
        return _drain(s, metadata, leaving, room, moving)
    return _balance(s, metadata, room, moving) or _by_load(s, metadata, room, moving)


def _by_load(s: Situation, metadata: Metadata, room: int, moving: int) -> dict[tuple[str, int], tuple[int, ...]]:
    """Moves that balance the load, if this is wanted, no other replica moves and every broker serves."""
    brokers = _takers(s, set())
    settled = not moving and all(s.up(i) for i in brokers) and s.record.open_replacement() is None
    settled = settled and len(brokers) == sum(node.broker for node in s.record.nodes)
    busy = any(s.removed(node) and s.kept(node) for node in s.record.nodes)
    if not s.wanted.load or not settled or busy or metadata.unseen or _balances(s, brokers, metadata):
        return {}
    moves = by_load(s, metadata, brokers, room)
    if moves:
        s.plan.waits.append(f"{len(moves)} partitions are moved to balance the load of brokers {brokers}")
    return moves


def _throttled(s: Situation, metadata: Metadata) -> bool:
    """Whether the wanted throttle rates are in force. True if no rates are wanted."""
    wanted = {**throttles(s), **s.wanted.dynamic_config}
    return all(same(metadata.dynamic_config.get(key), wanted[key]) for key in RATES if key in wanted)


def _takers(s: Situation, leaving: set[int]) -> list[int]:
    """Brokers that replicas can move to."""
    return [node.id for node in s.record.nodes if node.broker and node.id not in leaving and s.serves(node.id)]


def _drain(
    s: Situation, metadata: Metadata, leaving: set[int], room: int, moving: int
) -> dict[tuple[str, int], tuple[int, ...]]:
    todo = [partition for partition in metadata.partitions if leaving.intersection(partition.replicas)]
    stay = [i for i in _takers(s, leaving) if s.up(i)]
    moves = moves_of(metadata, todo, leaving, stay, room)
    if todo and not moves and not moving:
        s.plan.block(
            "CannotDrain",
            f"partition {todo[0].name} has {len(todo[0].replicas)} replicas and only brokers {stay} can take them:"
            f" brokers {sorted(leaving)} stay until there are more, or the topic has fewer replicas",
        )
    if todo:
        s.plan.waits.append(f"{len(todo)} partitions have to leave brokers {sorted(leaving)}")
    return moves


def _balances(s: Situation, brokers: list[int], metadata: Metadata) -> bool:
    """Whether replicas are to be balanced by count."""
    asked = s.wanted.balance not in {"", s.record.balanced_for}
    new = set(brokers) - set(s.record.balanced)
    first = not s.record.balanced and not metadata.partitions
    return asked or bool(new and (s.wanted.balance_new or first))


def _balance(s: Situation, metadata: Metadata, room: int, moving: int) -> dict[tuple[str, int], tuple[int, ...]]:
    """Moves that balance by count: on request or for new brokers, until no move improves the balance."""
    brokers = _takers(s, set())
    if not _balances(s, brokers, metadata):
        return {}
    if len(brokers) < sum(node.broker for node in s.record.nodes) or not all(s.up(i) for i in brokers):
        s.plan.waits.append("replicas are balanced once all brokers serve")
        return {}
    moves = {} if moving else balanced(metadata, brokers, room)
    if moves or moving:
        s.plan.waits.append(f"replicas are balanced among brokers {brokers}: {spread(metadata, brokers)}")
    elif not any(isinstance(step, Remember) for step in s.plan.steps):
        record = dataclasses.replace(s.record, balanced=tuple(brokers), balanced_for=s.wanted.balance)
        s.plan.steps.append(Remember(record, f"replicas are balanced among brokers {brokers}"))
    return moves
