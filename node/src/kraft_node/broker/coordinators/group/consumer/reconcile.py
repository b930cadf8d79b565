"""Moves one member towards its target: first it gives up partitions, then it gets partitions that no other member
holds (KIP-848).

A member in `UNREVOKED` stays at its epoch until a heartbeat reports a set of owned partitions without the revoked
partitions. So a partition is never assigned to a member while another member may still use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeAlias

from kraft_node.broker.coordinators.group.consumer.assignors.spec import Target
from kraft_node.broker.coordinators.group.consumer.member import Current, Held, MemberState
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import Uuid

Owned: TypeAlias = Mapping[Uuid, AbstractSet[int]]
"""The partitions that a member reports in a heartbeat."""


class Aim(NamedTuple):
    """The target of a member, and which partitions of it the member may have now."""

    epoch: int
    target: Target
    is_subscribed: Callable[[Uuid], bool]
    """Whether the member subscribes to a topic that exists."""
    is_free: Callable[[Uuid, int], bool]
    """Whether no other member holds the partition."""


def reconcile(current: Current, aim: Aim, owned: Owned | None, *, subscription_changed: bool) -> Current:
    """The next state of the member; the same object if nothing changes. `owned` is None if it was not reported.

    Raises KafkaError FENCED_MEMBER_EPOCH for a state of a later release, unless the member owns nothing.
    """
    state = current.state
    if state is MemberState.UNKNOWN and (owned is None or owned):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )
    waits = (state is MemberState.STABLE and current.epoch == aim.epoch) or (
        state is MemberState.UNREVOKED and _still_owns(owned, current.revoking)
    )
    if not waits:
        return _next(current, aim, owned)
    return _narrowed(current, aim, owned) if subscription_changed else current


def _next(current: Current, aim: Aim, owned: Owned | None) -> Current:
    kept: dict[Uuid, Mapping[int, int]] = {}
    revoked: dict[Uuid, Mapping[int, int]] = {}
    for topic, held in current.assigned.items():
        wanted = aim.target.get(topic, frozenset()) if aim.is_subscribed(topic) else frozenset()
        if held.keys() <= wanted:
            kept[topic] = held
            continue
        keep = {number: epoch for number, epoch in held.items() if number in wanted}
        if keep:
            kept[topic] = keep
        revoked[topic] = {number: epoch for number, epoch in held.items() if number not in wanted}
    if revoked and _still_owns(owned, revoked):
        changed = Current(current.epoch, current.epoch, MemberState.UNREVOKED, kept, revoked)
    else:
        assigned, complete = _with_free(kept, current, aim)
        state = MemberState.STABLE if complete else MemberState.UNRELEASED
        changed = Current(aim.epoch, current.epoch, state, assigned, {})
    if changed._replace(previous_epoch=current.previous_epoch) == current:
        return current
    return changed


def _with_free(kept: dict[Uuid, Mapping[int, int]], current: Current, aim: Aim) -> tuple[Held, bool]:
    """What is kept and what the target adds, as far as it is free; and whether that is all of the target."""
    complete = True
    assigned = kept
    for topic, wanted in aim.target.items():
        have = assigned.get(topic, {})
        if len(have) == len(wanted) or not aim.is_subscribed(topic):
            continue
        own = current.revoking.get(topic, {})
        added = {}
        for number in wanted:
            if number not in have:
                if number in own or aim.is_free(topic, number):
                    added[number] = aim.epoch
                else:
                    complete = False
        if added:
            assigned[topic] = {**have, **added}
    return assigned, complete


def _narrowed(current: Current, aim: Aim, owned: Owned | None) -> Current:
    """Without the topics to which the member no longer subscribes, at the same epoch."""
    gone = {topic: held for topic, held in current.assigned.items() if not aim.is_subscribed(topic)}
    if not gone:
        return current
    kept = {topic: held for topic, held in current.assigned.items() if topic not in gone}
    revoking: dict[Uuid, Mapping[int, int]] = dict(current.revoking)
    for topic, held in gone.items():
        revoking[topic] = {**revoking.get(topic, {}), **held}
    if _still_owns(owned, revoking):
        return current._replace(state=MemberState.UNREVOKED, assigned=kept, revoking=revoking)
    return current._replace(assigned=kept)


def _still_owns(owned: Owned | None, revoked: Held) -> bool:
    """Whether the member may still use a revoked partition; without a report it may."""
    if owned is None:
        return True
    return any(not numbers.isdisjoint(revoked[topic]) for topic, numbers in owned.items() if topic in revoked)


def is_within(owned: Owned | None, held: Held) -> bool:
    """Whether the reported partitions are a subset of the held partitions; False without reported partitions."""
    if owned is None:
        return False
    return all(topic in held and numbers <= held[topic].keys() for topic, numbers in owned.items())
