"""KRaftTopics: what is wanted and what is there -> what to do, in batches. Pure.

A topic's partitions only grow, its own configuration is the resource's (throttles aside, which are of moves). How many
replicas it has is the planner's business, as everything that moves (`replicas_of`, `plan.resize`). A topic that there
is already is taken over. Nothing blocks a resource's deletion: what is to be deleted with its resource is
remembered with its id (`owned`), so that it is deleted even if nobody was there to see the resource go, and so that a
topic of the same name that somebody has made since is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kraft_operator.plan.observed import THROTTLED
from kraft_operator.plan.values import same

BATCH_MAX: Final = 250
"""Topics created, changed or deleted by one pass: a request of so many takes a controller well under a second."""
OWNED_MAX: Final = 5000
"""Topics that go with their resources: 300 KiB of the cluster's status, of 1.5 MiB that an object may have."""


@dataclass(frozen=True, slots=True)
class TopicWish:
    """One resource."""

    resource: str
    topic: str
    partitions: int
    replicas: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    delete: bool = False
    """With the resource."""


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """One topic; `config` is its own, without what it has from the cluster."""

    id: str
    partitions: int
    replicas: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicState:
    """What is told of a resource."""

    ready: bool
    reason: str
    message: str = ""


@dataclass(slots=True)
class TopicPlan:
    """What to do; `owned` is remembered before any of it."""

    owned: dict[str, str]
    create: list[TopicWish] = field(default_factory=list)
    grow: dict[str, int] = field(default_factory=dict)
    configure: dict[str, tuple[dict[str, str], tuple[str, ...]]] = field(default_factory=dict)
    """Topic -> values to set, keys to take back."""
    delete: dict[str, str] = field(default_factory=dict)
    states: dict[str, TopicState] = field(default_factory=dict)
    """By resource."""

    @property
    def changing(self) -> set[str]:
        """Topics that are made or changed."""
        return {wish.topic for wish in self.create} | self.grow.keys() | self.configure.keys()

    @property
    def count(self) -> int:
        return len(self.create) + len(self.grow.keys() | self.configure.keys()) + len(self.delete)

    @property
    def lines(self) -> list[str]:
        """For people."""
        created = [f"create topic {wish.topic} with {wish.partitions} partition(s)" for wish in self.create]
        grown = [f"give topic {topic} {count} partitions" for topic, count in self.grow.items()]
        changed = []
        for topic, (put, remove) in self.configure.items():
            words = [*(f"{key}={value}" for key, value in put.items()), *(f"no {key}" for key in remove)]
            changed.append(f"configure topic {topic}: {', '.join(words)}")
        return [*created, *grown, *changed, *(f"delete topic {topic}" for topic in self.delete)]


def plan_topics(wishes: Iterable[TopicWish], seen: Mapping[str, TopicSeen], owned: Mapping[str, str]) -> TopicPlan:
    """The next batch. `seen` has all topics that are wished for or owned, as far as they are there."""
    plan = TopicPlan({})
    claimed: dict[str, TopicWish] = {}
    for wish in sorted(wishes, key=lambda wish: wish.resource):
        first = claimed.setdefault(wish.topic, wish)
        if first is not wish:
            text = f"the topic {wish.topic} is {first.resource}'s: delete one of the two resources"
            plan.states[wish.resource] = TopicState(False, "TopicTaken", text)
    for topic, topic_id in owned.items():
        there = seen.get(topic)
        if topic not in claimed and there is not None and there.id == topic_id:
            plan.owned[topic] = topic_id
            if plan.count < BATCH_MAX:
                plan.delete[topic] = topic_id
    for topic, wish in claimed.items():
        there = seen.get(topic)
        if there is None:
            plan.states[wish.resource] = TopicState(False, "Creating")
            if plan.count < BATCH_MAX:
                plan.create.append(wish)
            continue
        state = _change(plan, wish, there)
        if wish.delete and (topic in owned or len(plan.owned.keys() | owned.keys()) < OWNED_MAX):
            plan.owned[topic] = there.id
        elif wish.delete:
            text = f"{OWNED_MAX} topics of this cluster go with their resources, and no more can: set deletionPolicy to"
            state = TopicState(False, "TooManyOwned", text + " Keep")
        plan.states[wish.resource] = state
    return plan


def replicas_of(wishes: Iterable[TopicWish]) -> dict[str, int]:
    """How many replicas topics shall have: what the first of their resources says."""
    found: dict[str, int | None] = {}
    for wish in sorted(wishes, key=lambda wish: wish.resource):
        found.setdefault(wish.topic, wish.replicas)
    return {topic: replicas for topic, replicas in found.items() if replicas is not None}


def _change(plan: TopicPlan, wish: TopicWish, there: TopicSeen) -> TopicState:
    """Plan what a topic lacks; how it is."""
    put = {key: value for key, value in wish.config.items() if not same(there.config.get(key), value)}
    remove = tuple(sorted(there.config.keys() - wish.config.keys() - set(THROTTLED)))
    grows = there.partitions < wish.partitions
    if (put or remove or grows) and plan.count < BATCH_MAX:
        if grows:
            plan.grow[wish.topic] = wish.partitions
        if put or remove:
            plan.configure[wish.topic] = (put, remove)
    if there.partitions > wish.partitions:
        text = f"{wish.topic} has {there.partitions} partitions, {wish.partitions} are asked for, and none can be taken"
        return TopicState(False, "TooManyPartitions", text + " away: raise spec.partitions")
    if wish.replicas is not None and there.replicas != wish.replicas:
        text = f"{wish.topic} has {there.replicas} replicas, {wish.replicas} are asked for: the cluster's conditions"
        return TopicState(False, "ReplicasMove", text + " tell what they wait for")
    return TopicState(False, "Changing") if put or remove or grows else TopicState(True, "InForce")
