"""KRaftTopics by Kafka's protocol: what is declared, what is there, the planned batch, what was refused.

Who calls it: the reconciler, and the supervisor of a local cluster, after a pass that found brokers. It decides
nothing: `plan.topics` does.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

from pydantic import ValidationError

from kraft_operator.api.problems import VERSIONS, problems, pruned
from kraft_operator.api.topic import KRaftTopicSpec
from kraft_operator.kafka import schemas
from kraft_operator.kafka.client import Address, Client, UnreachableError
from kraft_operator.plan.record import Claim
from kraft_operator.plan.topics import (
    Declared,
    TopicPlan,
    TopicSeen,
    TopicsSeen,
    TopicState,
    TopicWish,
    Unread,
    exists,
    plan_topics,
)

TOPIC: Final = 2
DYNAMIC_TOPIC: Final = 1
"""ConfigSource of DescribeConfigs: the topic's own value."""
SET: Final = 0
DELETE: Final = 1
NONE: Final = bytes(16)
UNKNOWN: Final = frozenset({3, 17, 100})
"""UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION (a name that none can have), UNKNOWN_TOPIC_ID."""
DENIED: Final = 29
"""TOPIC_AUTHORIZATION_FAILED."""
EXISTS: Final = 36
TIMED_OUT: Final = 7
"""REQUEST_TIMED_OUT: it may be done nevertheless."""
TIMEOUT_MS: Final = 2500
A_REQUEST: Final = 500


def declared(
    resources: Iterable[Mapping[str, Any]], cluster: str, claims: Iterable[Claim] = ()
) -> tuple[Declared, dict[str, TopicState]]:
    """What the KRaftTopics of a namespace mean for a cluster; those that are not understood with the reason.

    `resources` are all there are, as the API server has them: no topic of a resource among them is deleted.
    """
    wishes, unread, states = [], [], {}
    there = set()
    claimants = {(claim.resource, claim.uid) for claim in claims}
    for one in resources:
        metadata, spec = one["metadata"], one.get("spec") or {}
        name, uid = metadata["name"], metadata.get("uid", "")
        there.add((name, uid))
        if "deletionTimestamp" in metadata:
            continue
        mine = spec.get("cluster")
        if mine != cluster and (name, uid) not in claimants and isinstance(mine, str):
            continue
        wrong = pruned(KRaftTopicSpec, spec)
        try:
            # What a later version of the definitions has besides is for a later operator.
            parsed = KRaftTopicSpec.model_validate(spec, extra="ignore")
        except ValidationError as error:
            wrong = [*problems(error), *wrong]
        if wrong:
            states[name] = TopicState(False, "NotUnderstood", "; ".join(wrong) + VERSIONS)
            unread.append(Unread(name, str(spec.get("topicName") or name), one.get("status", {}).get("topicId", "")))
        elif mine == cluster:
            wishes.append(_wish(one, parsed))
    return Declared(tuple(wishes), tuple(unread), frozenset(there)), states


def _wish(one: Mapping[str, Any], spec: KRaftTopicSpec) -> TopicWish:
    metadata, status = one["metadata"], one.get("status", {})
    # A definition of before has no `creating`, but the reason.
    reason = next((condition["reason"] for condition in status.get("conditions", ())), "")
    return TopicWish(
        metadata["name"],
        spec.topic_name or metadata["name"],
        spec.partitions,
        spec.replicas,
        dict(spec.config),
        spec.deletion_policy == "Delete",
        bool(spec.adopt),
        metadata.get("uid", ""),
        metadata.get("creationTimestamp", ""),
        status.get("topicId", ""),
        frozenset(status.get("managedConfig", ())),
        bool(status.get("creating", reason == "Creating")),
    )


def id_text(raw: bytes) -> str:
    """In Kafka's form."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def id_bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


async def look(client: Client, broker: Address, names: Sequence[str], cluster_id: str | None = None) -> TopicsSeen:
    """Those of `names` that exist. Raises UnreachableError, also where another cluster than `cluster_id` answers."""
    found: dict[str, TopicSeen] = {}
    hidden: dict[str, str] = {}
    for first in range(0, len(names), A_REQUEST):
        part = [{"id": NONE, "name": name} for name in names[first : first + A_REQUEST]]
        answer = await client.ask(broker, schemas.METADATA, topics=part, auto_create=False, operations=False)
        if cluster_id is not None and answer["cluster_id"] != cluster_id:
            raise UnreachableError(f"{broker} belongs to cluster {answer['cluster_id']}, not to {cluster_id}")
        there = {one["name"]: one for one in answer["topics"] if not one["error"]}
        for one in answer["topics"]:
            if one["error"] and one["error"] not in UNKNOWN:
                hidden[one["name"]] = _hidden(one["name"], "Describe", one["error"])
        if not there:
            continue
        resources = [{"type": TOPIC, "name": name, "keys": None} for name in there]
        told = await client.ask(
            broker, schemas.DESCRIBE_CONFIGS, resources=resources, synonyms=False, documentation=False
        )
        for one in told["results"]:
            if one["error"]:
                hidden[one["name"]] = _hidden(one["name"], "DescribeConfigs", one["error"])
                continue
            found[one["name"]] = _seen(there[one["name"]], one["configs"])
    return TopicsSeen(found, hidden)


def _hidden(name: str, operation: str, error: int) -> str:
    if error == DENIED:
        text = f"the operator may not see the topic {name}: allow its principal the operation {operation} on it"
        return f"{text}; until then the topic is neither created, changed nor deleted"
    return f"the cluster does not tell how the topic {name} is (error {error}): the operator asks again"


def _seen(topic: Mapping[str, Any], configs: Iterable[Mapping[str, Any]]) -> TopicSeen:
    own = {c["name"]: c["value"] or "" for c in configs if c["source"] == DYNAMIC_TOPIC}
    partitions = topic["partitions"]
    # Replicas are added and taken away in the order of the partitions: of the last one last.
    replicas = len(max(partitions, key=lambda one: one["index"])["replicas"]) if partitions else 0
    return TopicSeen(id_text(topic["id"]), len(partitions), replicas, own, topic["internal"])


Refusals = dict[str, tuple[int, str]]
"""Error and message by topic."""


async def validate(client: Client, broker: Address, wishes: Sequence[TopicWish]) -> Refusals:
    """Which topics the cluster would not create. Raises UnreachableError."""
    return await _create(client, broker, wishes, validate_only=True)


async def _create(client: Client, broker: Address, wishes: Sequence[TopicWish], *, validate_only: bool) -> Refusals:
    topics = [
        {
            "name": wish.topic,
            "partitions": wish.partitions,
            "replicas": -1 if wish.replicas is None else wish.replicas,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in wish.config.items()],
        }
        for wish in wishes
    ]
    refused: Refusals = {}
    if topics:
        answer = await client.ask(
            broker, schemas.CREATE_TOPICS, topics=topics, timeout_ms=TIMEOUT_MS, validate_only=validate_only
        )
        _note(refused, answer["topics"])
    return refused


async def carry_out(client: Client, broker: Address, plan: TopicPlan) -> Refusals:
    """Do the batch; what was refused. Raises UnreachableError."""
    refused = await _create(client, broker, plan.create, validate_only=False)
    common: dict[str, Any] = {"timeout_ms": TIMEOUT_MS, "validate_only": False}
    if plan.grow:
        grown = [{"name": name, "count": count, "assignments": None} for name, count in plan.grow.items()]
        answer = await client.ask(broker, schemas.CREATE_PARTITIONS, topics=grown, **common)
        _note(refused, answer["topics"])
    if plan.configure:
        resources = []
        for name, (put, remove) in plan.configure.items():
            configs = [{"name": key, "operation": SET, "value": value} for key, value in put.items()]
            configs += [{"name": key, "operation": DELETE, "value": None} for key in remove]
            resources.append({"type": TOPIC, "name": name, "configs": configs})
        answer = await client.ask(broker, schemas.INCREMENTAL_ALTER_CONFIGS, resources=resources, validate_only=False)
        _note(refused, answer["responses"])
    if plan.delete:
        gone = [{"name": None, "id": id_bytes(claim.id)} for claim in plan.delete.values()]
        answer = await client.ask(broker, schemas.DELETE_TOPICS, topics=gone, timeout_ms=TIMEOUT_MS)
        names = {claim.id: topic for topic, claim in plan.delete.items()}
        _note(refused, [{**one, "name": names[id_text(one["id"])]} for one in answer["topics"]], UNKNOWN)
    return refused


async def steady(
    client: Client, broker: Address, declared: Declared, claims: Mapping[str, Claim], cluster_id: str | None
) -> Mapping[str, TopicState] | None:
    """States of topics that need nothing; None if a batch is due, or a claim changes. Raises UnreachableError."""
    names = sorted({*claims, *(wish.topic for wish in declared.wishes)})
    plan = plan_topics(declared, await look(client, broker, names, cluster_id), claims)
    return None if plan.count or plan.claims != claims else plan.states


class Keeper(Protocol):
    """What outlives a pass, and who is told."""

    async def remember(self, claims: Mapping[str, Claim]) -> None:
        """Claims, before any of the topics is made."""

    async def tell(self, states: Mapping[str, TopicState]) -> None:
        """States, by resource."""

    async def gone(self, claims: Collection[Claim]) -> set[str]:
        """Topics whose resource is certain to be gone by now. Their deletion is announced before this returns."""

    async def kept(self, claims: Collection[Claim]) -> None:
        """Topics that stay although their claim ends."""


class Pass(NamedTuple):
    """One look at the topics, and a batch."""

    client: Client
    broker: Address
    keeper: Keeper
    cluster_id: str | None = None

    async def run(self, declared: Declared, claims: Mapping[str, Claim]) -> bool:
        """Look, plan, do a batch; whether there is more to do, or something to be seen. Raises UnreachableError."""
        names = sorted({*claims, *(wish.topic for wish in declared.wishes)})
        plan = plan_topics(declared, await look(self.client, self.broker, names, self.cluster_id), claims)
        if plan.claims != claims:
            await self.keeper.kept(plan.kept.values())
            await self.keeper.remember(plan.claims)
        refused = await validate(self.client, self.broker, plan.create)
        plan.create = [wish for wish in plan.create if wish.topic not in refused]
        if plan.delete:
            gone = await self.keeper.gone(plan.delete.values())
            plan.delete = {topic: claim for topic, claim in plan.delete.items() if topic in gone}
        # What is about to be made is in the statuses before: whoever crashes knows it for its own.
        await self.keeper.tell(_before(declared, plan, refused))
        if plan.count:
            refused = await carry_out(self.client, self.broker, plan)
            await self.keeper.tell(_refused(declared, plan, refused))
            return plan.count > len(refused)
        return False


def _before(declared: Declared, plan: TopicPlan, refused: Refusals) -> dict[str, TopicState]:
    """States before the batch. One that is about to change is told when that has been seen."""
    states = dict(plan.states) | _refused(declared, plan, refused)
    for wish in declared.wishes:
        state = states.get(wish.resource)
        if state is not None and state.reason == "Changing" and set(state.managed) <= wish.managed:
            states.pop(wish.resource)
    return states


def _refused(declared: Declared, plan: TopicPlan, refused: Refusals) -> dict[str, TopicState]:
    states = {}
    for wish in declared.wishes:
        if wish.topic not in refused or plan.states[wish.resource].reason in {"TopicTaken", "InternalTopic"}:
            continue
        error, message = refused[wish.topic]
        if error == EXISTS and not wish.creating:
            states[wish.resource] = exists(wish)
        elif error != EXISTS:
            state = plan.states[wish.resource]
            late = error == TIMED_OUT and state.creating
            states[wish.resource] = replace(state, ready=False, reason="Refused", message=message, creating=late)
    return states


def _note(refused: Refusals, answers: Iterable[Mapping[str, Any]], allowed: Collection[int] = ()) -> None:
    for one in answers:
        if one["error"] and one["error"] not in allowed:
            refused.setdefault(one["name"], (one["error"], one.get("message") or f"error {one['error']}"))


def status(state: TopicState, resource: Mapping[str, Any], now: str) -> dict[str, Any]:
    """The whole status of a resource, with the time of its condition's last change."""
    generation = resource["metadata"].get("generation", 0)
    was: Mapping[str, Any] = resource.get("status", {})
    value = "True" if state.ready else "False"
    before: Mapping[str, Any] = next(iter(was.get("conditions", ())), {})
    since = before.get("lastTransitionTime", now) if before.get("status") == value else now
    condition = {
        "type": "Ready",
        "status": value,
        "reason": state.reason,
        "message": state.message[:4000],
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }
    found: dict[str, Any] = {"observedGeneration": generation, "conditions": [condition]}
    if not state.known:
        return {**was, **found}
    found |= {"managedConfig": list(state.managed), "creating": state.creating}
    if state.topic is not None:
        found |= {
            "topicId": state.topic.id,
            "partitions": state.topic.partitions,
            "replicas": state.topic.replicas,
        }
    return found
