"""KRaftTopics by Kafka's protocol: what is there, the planned batch, what each topic was refused for.

Who calls it: the reconciler, and the supervisor of a local cluster, after a pass that found brokers. It decides
nothing: `plan.topics` does.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from kraft_operator.api.topic import KRaftTopicSpec
from kraft_operator.kafka import schemas
from kraft_operator.kafka.client import Address, Client, UnreachableError
from kraft_operator.plan.topics import TopicPlan, TopicSeen, TopicState, TopicWish, plan_topics

TOPIC: Final = 2
DYNAMIC_TOPIC: Final = 1
"""ConfigSource of DescribeConfigs: the topic's own value."""
SET: Final = 0
DELETE: Final = 1
NONE: Final = bytes(16)
UNKNOWN: Final = frozenset({3, 17, 100})
"""UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION (a name that none can have), UNKNOWN_TOPIC_ID."""
EXISTS: Final = 36
TIMEOUT_MS: Final = 2500
A_REQUEST: Final = 500


def wishes(resources: Iterable[Mapping[str, Any]], cluster: str) -> tuple[list[TopicWish], dict[str, TopicState]]:
    """Those of a cluster; what is not understood with the reason."""
    found, wrong = [], {}
    for one in resources:
        name = one["metadata"]["name"]
        if one.get("spec", {}).get("cluster") != cluster or "deletionTimestamp" in one["metadata"]:
            continue
        try:
            # What a later version of the definitions has besides is for a later operator.
            spec = KRaftTopicSpec.model_validate(one["spec"], extra="ignore")
        except ValidationError as error:
            wrong[name] = TopicState(False, "NotUnderstood", str(error)[:900])
            continue
        delete = spec.deletion_policy == "Delete"
        topic = spec.topic_name or name
        found.append(TopicWish(name, topic, spec.partitions, spec.replicas, dict(spec.config), delete))
    return found, wrong


def id_text(raw: bytes) -> str:
    """In Kafka's form."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def id_bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


async def look(client: Client, broker: Address, names: Sequence[str]) -> dict[str, TopicSeen]:
    """Those of `names` that are there. Raises UnreachableError."""
    found: dict[str, TopicSeen] = {}
    for first in range(0, len(names), A_REQUEST):
        part = [{"id": NONE, "name": name} for name in names[first : first + A_REQUEST]]
        answer = await client.ask(broker, schemas.METADATA, topics=part, auto_create=False, operations=False)
        there = {one["name"]: one for one in answer["topics"] if not one["error"]}
        if any(one["error"] and one["error"] not in UNKNOWN for one in answer["topics"]):
            raise UnreachableError(f"{broker}: Metadata: not all topics are known to it")
        if not there:
            continue
        resources = [{"type": TOPIC, "name": name, "keys": None} for name in there]
        told = await client.ask(
            broker, schemas.DESCRIBE_CONFIGS, resources=resources, synonyms=False, documentation=False
        )
        for one in told["results"]:
            if one["error"]:
                continue
            topic = there[one["name"]]
            own = {c["name"]: c["value"] or "" for c in one["configs"] if c["source"] == DYNAMIC_TOPIC}
            partitions = topic["partitions"]
            # Replicas are added and taken away in the order of the partitions: of the last one last.
            replicas = len(max(partitions, key=lambda one: one["index"])["replicas"]) if partitions else 0
            found[one["name"]] = TopicSeen(id_text(topic["id"]), len(partitions), replicas, own)
    return found


async def carry_out(client: Client, broker: Address, plan: TopicPlan) -> dict[str, str]:
    """Do the batch; what was refused, by topic. Raises UnreachableError."""
    refused: dict[str, str] = {}
    common: dict[str, Any] = {"timeout_ms": TIMEOUT_MS, "validate_only": False}
    if plan.create:
        topics = [
            {
                "name": wish.topic,
                "partitions": wish.partitions,
                "replicas": -1 if wish.replicas is None else wish.replicas,
                "assignments": [],
                "configs": [{"name": key, "value": value} for key, value in wish.config.items()],
            }
            for wish in plan.create
        ]
        answer = await client.ask(broker, schemas.CREATE_TOPICS, topics=topics, **common)
        _note(refused, answer["topics"], allowed=EXISTS)
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
        gone = [{"name": None, "id": id_bytes(topic_id)} for topic_id in plan.delete.values()]
        await client.ask(broker, schemas.DELETE_TOPICS, topics=gone, timeout_ms=TIMEOUT_MS)
    return refused


class Outcome(NamedTuple):
    """Of one pass."""

    seen: dict[str, TopicSeen]
    """What there was before it."""
    states: dict[str, TopicState]
    """By resource; of those that were just changed nothing: the next pass sees how they are."""
    again: bool
    """Whether there is more to do, or something to be seen."""


async def one_pass(
    client: Client,
    broker: Address,
    wanted: Sequence[TopicWish],
    owned: Mapping[str, str],
    remember: Callable[[dict[str, str]], Awaitable[object]],
) -> Outcome:
    """Look, plan, do a batch. `remember` is awaited with what goes with its resources before any of it is made."""
    seen = await look(client, broker, sorted({*owned, *(wish.topic for wish in wanted)}))
    plan = plan_topics(wanted, seen, owned)
    if plan.owned != owned:
        await remember(plan.owned)
    refused = await carry_out(client, broker, plan) if plan.count else {}
    under_way = plan.changing - refused.keys()
    states = dict(plan.states)
    for wish in wanted:
        if wish.topic in refused:
            states[wish.resource] = TopicState(False, "Refused", refused[wish.topic])
        elif wish.topic in under_way:
            states.pop(wish.resource, None)
    return Outcome(seen, states, plan.count > len(refused))


def _note(refused: dict[str, str], answers: Iterable[Mapping[str, Any]], *, allowed: int = 0) -> None:
    for one in answers:
        if one["error"] not in {0, allowed}:
            refused.setdefault(one["name"], one.get("message") or f"error {one['error']}")


def status(state: TopicState, there: TopicSeen | None, resource: Mapping[str, Any], now: str) -> dict[str, Any]:
    """The whole status of a resource, with the time of its condition's last change."""
    generation = resource["metadata"].get("generation", 0)
    value = "True" if state.ready else "False"
    before: Mapping[str, Any] = next(iter(resource.get("status", {}).get("conditions", ())), {})
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
    if there is not None:
        found |= {"topicId": there.id, "partitions": there.partitions, "replicas": there.replicas}
    return found
