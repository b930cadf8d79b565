"""Planning of KRaftTopics: compares declared and existing topics and plans batches of changes. Pure.

The number of partitions only grows. A resource sets the configurations that it names, and resets only configurations
that it has set. The cluster's planner changes the number of replicas, because replicas move (`replicas_of`,
`plan.replicas.resize`).

Ownership of topics:

- A resource owns the topic that it created. With `adopt`, it also owns a topic that existed before. No resource owns
  an internal topic.
- If two resources name the same topic, the present owner keeps it; else the older resource gets it, else the first by
  name.

Deletion: a resource with `deletionPolicy: Delete` claims its topic, by the topic's id and its own uid. The record
keeps the claim, so no finalizer is needed. A claimed topic is deleted once no resource with its name and uid exists
and no other resource may mean the topic. A malformed resource still exists, so its claim stays.

A broker may not have applied the newest metadata. So a claimed topic that is not seen may exist, and its claim stays
until `TopicsSeen.complete`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kraft_operator.plan.model.observed import THROTTLED
from kraft_operator.plan.model.record import Claim
from kraft_operator.plan.model.values import same

BATCH_MAX: Final = 250
"""The most topics that one pass creates, changes or deletes. A controller handles a request of this size in well under
a second."""
CLAIMS_MAX: Final = 5000
"""The most claims of one cluster. They take 700 KiB of an object, which may have 1.5 MiB."""
INTERNAL: Final = frozenset({"__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state"})
"""Topics of the cluster itself. A KRaftTopic cannot manage them."""


@dataclass(frozen=True, slots=True)
class DesiredTopic:
    """A valid resource. `topic_id`, `managed` and `creating` come from its status."""

    resource: str
    topic: str
    partitions: int
    replicas: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    delete: bool = False
    """Delete the topic with the resource."""
    adopt: bool = False
    uid: str = ""
    created: str = ""
    """`metadata.creationTimestamp` of the resource. These texts sort by time."""
    topic_id: str = ""
    """The id of its topic; empty without a topic."""
    managed: frozenset[str] = frozenset()
    """Configurations that it has set."""
    creating: bool = False
    """The operator has begun to create the topic. If the topic exists by now, it belongs to this resource."""

    def claim(self, topic_id: str) -> Claim:
        """The claim on the topic with this id."""
        return Claim(self.topic, topic_id, self.resource, self.uid)


@dataclass(frozen=True, slots=True)
class UnreadTopic:
    """A malformed resource; `topic` is the topic that it seems to mean."""

    resource: str
    topic: str
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class DeclaredTopics:
    """All KRaftTopics of the namespace, as far as they concern one cluster."""

    desired_topics: tuple[DesiredTopic, ...] = ()
    unread: tuple[UnreadTopic, ...] = ()
    there: frozenset[tuple[str, str]] = frozenset()
    """Name and uid of every existing resource, valid or not."""


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """An existing topic; `config` has its own values only, not values inherited from the cluster."""

    id: str
    partitions: int
    replicas: int
    config: Mapping[str, str] = field(default_factory=dict)
    internal: bool = False


@dataclass(frozen=True, slots=True)
class TopicsSeen:
    """The observed topics; topics that do not exist are missing."""

    there: Mapping[str, TopicSeen] = field(default_factory=dict)
    hidden: Mapping[str, str] = field(default_factory=dict)
    """Topics that the cluster does not show, with the reason. They may exist."""
    complete: bool = False
    """Whether topics that are missing here certainly do not exist."""

    def has(self, claim: Claim) -> bool:
        """Whether the topic of a claim is seen."""
        there = self.there.get(claim.topic)
        return there is not None and there.id == claim.id


@dataclass(frozen=True, slots=True)
class TopicState:
    """The status of a resource. Unless `known`, the status keeps its previous topic, id and managed configurations."""

    ready: bool
    reason: str
    message: str = ""
    known: bool = False
    topic: TopicSeen | None = None
    managed: tuple[str, ...] = ()
    creating: bool = False


@dataclass(slots=True)
class TopicPlan:
    """The next batch of changes. `claims` are recorded before any change is made."""

    claims: dict[str, Claim]
    create: list[DesiredTopic] = field(default_factory=list)
    grow: dict[str, int] = field(default_factory=dict)
    configure: dict[str, tuple[dict[str, str], tuple[str, ...]]] = field(default_factory=dict)
    """By topic: values to set, and keys to reset."""
    delete: dict[str, Claim] = field(default_factory=dict)
    kept: dict[str, Claim] = field(default_factory=dict)
    """Claims that end without a deletion, by topic."""
    states: dict[str, TopicState] = field(default_factory=dict)
    """States by the name of the resource."""
    made: dict[str, str] = field(default_factory=dict)
    """Ids of the topics that were created, by topic."""

    @property
    def changing(self) -> set[str]:
        """Names of the topics that are created or changed."""
        return {desired.topic for desired in self.create} | self.grow.keys() | self.configure.keys()

    @property
    def count(self) -> int:
        """The number of topics that are created, changed or deleted."""
        return len(self.create) + len(self.grow.keys() | self.configure.keys()) + len(self.delete)

    @property
    def lines(self) -> list[str]:
        """One message for each change."""
        created = [f"create topic {desired.topic} with {desired.partitions} partition(s)" for desired in self.create]
        grown = [f"give topic {topic} {count} partitions" for topic, count in self.grow.items()]
        changed = []
        for topic, (put, remove) in self.configure.items():
            words = [*(f"{key}={value}" for key, value in put.items()), *(f"no {key}" for key in remove)]
            changed.append(f"configure topic {topic}: {', '.join(words)}")
        return [*created, *grown, *changed, *(f"delete topic {topic}" for topic in self.delete)]


def plan_topics(declared: DeclaredTopics, seen: TopicsSeen, claims: Mapping[str, Claim]) -> TopicPlan:
    """Plan the next batch. `seen` must cover all declared and claimed topics."""
    plan = TopicPlan({})
    holders = _holders(plan, declared, seen, claims)
    for topic, claim in claims.items():
        if topic in seen.hidden or not (seen.complete or seen.has(claim)):
            plan.claims[topic] = claim
        elif topic not in holders:
            _ends(plan, declared, claim, seen.there.get(topic))
    for topic, desired in holders.items():
        if topic in seen.hidden:
            plan.states[desired.resource] = TopicState(False, "NotVisible", seen.hidden[topic])
        else:
            state = _follow(plan, desired, seen.there.get(topic), claims)
            if not seen.complete and state.known:
                state = replace(state, managed=tuple(sorted({*state.managed, *desired.managed})))
            plan.states[desired.resource] = state
    return plan


def claims_on(plan: TopicPlan) -> dict[str, Claim]:
    """The claims after a batch: a resource that is deleted before its topic is seen takes the topic along, too."""
    room = max(0, CLAIMS_MAX - len(plan.claims))
    made = [one for one in plan.create if one.topic in plan.made and one.delete][:room]
    return {**plan.claims, **{one.topic: one.claim(plan.made[one.topic]) for one in made}}


def unseen(declared: DeclaredTopics, claims: Iterable[Claim], seen: TopicsSeen) -> bool:
    """Whether a claimed topic, or a configuration to reset, is not seen. It needs a proof, to be forgotten."""
    if any(one.topic not in seen.hidden and not seen.has(one) for one in claims):
        return True
    there = [(one, seen.there[one.topic]) for one in declared.desired_topics if one.topic in seen.there]
    return any(one.managed - one.config.keys() - topic.config.keys() for one, topic in there)


def replicas_of(desired_topics: Iterable[DesiredTopic]) -> dict[str, int]:
    """The wanted number of replicas by topic, from the resources that own a topic."""
    return {
        desired.topic: desired.replicas
        for desired in desired_topics
        if desired.topic_id and desired.replicas is not None
    }


# Ownership of topics


def _holders(
    plan: TopicPlan, declared: DeclaredTopics, seen: TopicsSeen, claims: Mapping[str, Claim]
) -> dict[str, DesiredTopic]:
    """The owner of each topic. Other resources that name the topic get the state TopicTaken."""
    found: dict[str, DesiredTopic] = {}
    unread = {one.topic: one for one in declared.unread if one.topic_id}
    for desired in sorted(
        declared.desired_topics, key=lambda desired: _order(desired, seen.there.get(desired.topic), claims)
    ):
        if desired.topic in INTERNAL or ((there := seen.there.get(desired.topic)) is not None and there.internal):
            text = f"the topic {desired.topic} is internal: choose another spec.topicName"
            plan.states[desired.resource] = TopicState(False, "InternalTopic", text, known=True)
            continue
        first = found.setdefault(desired.topic, desired).resource
        other = unread.get(desired.topic)
        if first == desired.resource and other is not None and not desired.topic_id:
            del found[desired.topic]
            first = other.resource
        if first != desired.resource:
            text = f"the topic {desired.topic} is the KRaftTopic {first}'s: delete one of the two resources"
            plan.states[desired.resource] = TopicState(False, "TopicTaken", text, known=True)
    return found


def _order(desired: DesiredTopic, there: TopicSeen | None, claims: Mapping[str, Claim]) -> tuple[bool, bool, str, str]:
    claim = claims.get(desired.topic)
    claimed = claim is not None and (claim.resource, claim.uid) == (desired.resource, desired.uid)
    has = there is not None and desired.topic_id == there.id
    return not claimed, not has, desired.created, desired.resource


def _may_have(desired: DesiredTopic, there: TopicSeen, claim: Claim | None) -> bool:
    """Whether a resource may own an existing topic. A recreated resource takes over the claim of its name."""
    is_successor = claim is not None and claim.id == there.id and claim.resource == desired.resource
    return desired.adopt or desired.creating or desired.topic_id == there.id or is_successor


# Deletion and changes


def _ends(plan: TopicPlan, declared: DeclaredTopics, claim: Claim, there: TopicSeen | None) -> None:
    """Plan for a claim on a topic without an owner: delete the topic once the claiming resource is certainly gone."""
    if there is None or there.id != claim.id:
        return
    named = any(desired.topic == claim.topic for desired in declared.desired_topics)
    exists = (claim.resource, claim.uid) in declared.there
    meant = any(claim.topic in {one.topic, one.resource} or claim.resource == one.resource for one in declared.unread)
    if exists or meant:
        plan.claims[claim.topic] = claim
    elif named or not claim.resource or there.internal or claim.topic in INTERNAL:
        plan.kept[claim.topic] = claim
    else:
        plan.claims[claim.topic] = claim
        if plan.count < BATCH_MAX:
            plan.delete[claim.topic] = claim


def _follow(plan: TopicPlan, desired: DesiredTopic, there: TopicSeen | None, claims: Mapping[str, Claim]) -> TopicState:
    """Plan the changes and the claim of a resource's topic. Returns the state of the resource."""
    claim = claims.get(desired.topic)
    if there is None:
        if plan.count < BATCH_MAX:
            plan.create.append(desired)
        return TopicState(False, "Creating", known=True, managed=tuple(sorted(desired.config)), creating=True)
    if not _may_have(desired, there, claim):
        if claim is not None and claim.id == there.id:
            plan.kept[desired.topic] = claim
        return exists(desired)
    state = _change(plan, desired, there)
    if desired.delete and (desired.topic in claims or len(plan.claims.keys() | claims.keys()) < CLAIMS_MAX):
        plan.claims.setdefault(desired.topic, desired.claim(there.id))  # a claim that waits for a proof stays
    elif desired.delete:
        text = f"{CLAIMS_MAX} topics of this cluster go with their resources, and no more can: set deletionPolicy to"
        state = replace(state, ready=False, reason="TooManyOwned", message=text + " Keep")
    managed = tuple(sorted(desired.config.keys() | (desired.managed & there.config.keys())))
    return replace(state, known=True, topic=there, managed=managed)


def exists(desired: DesiredTopic) -> TopicState:
    """The state of a resource that does not own the existing topic."""
    text = (
        f"the topic {desired.topic} exists, and this resource did not create it: set spec.adopt to true to take it over"
    )
    text += " (configurations that spec.config does not name stay as they are), or choose another spec.topicName"
    return TopicState(False, "TopicExists", text, known=True)


def _change(plan: TopicPlan, desired: DesiredTopic, there: TopicSeen) -> TopicState:
    """Plan the changes of an existing topic. Returns the state of its resource."""
    put = {key: value for key, value in desired.config.items() if not same(there.config.get(key), value)}
    remove = tuple(sorted((desired.managed & there.config.keys()) - desired.config.keys() - set(THROTTLED)))
    grows = there.partitions < desired.partitions
    if (put or remove or grows) and plan.count < BATCH_MAX:
        if grows:
            plan.grow[desired.topic] = desired.partitions
        if put or remove:
            plan.configure[desired.topic] = (put, remove)
    if there.partitions > desired.partitions:
        text = f"{desired.topic} has {there.partitions} partitions, {desired.partitions} are requested,"
        return TopicState(False, "TooManyPartitions", text + " and Kafka removes none: raise spec.partitions")
    if desired.replicas is not None and there.replicas != desired.replicas:
        text = (
            f"{desired.topic} has {there.replicas} replicas, {desired.replicas} are requested: the cluster's conditions"
        )
        return TopicState(False, "ReplicasMove", text + " name the reason to wait")
    return TopicState(False, "Changing") if put or remove or grows else TopicState(True, "InForce")
