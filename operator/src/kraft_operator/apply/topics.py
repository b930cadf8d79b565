"""KRaftTopics through Kafka's protocol: read the declared and existing topics, carry out a batch, report refusals.

The reconciler and the supervisor of a local cluster call it after a pass that found brokers. `plan.topics` decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

from kraft_operator.api.topic import KRaftTopicSpec
from kraft_operator.apply.declared import declarations, ready_status
from kraft_operator.apply.kafka import altered
from kraft_operator.observe.source import MetadataSource
from kraft_operator.plan.model.record import Claim
from kraft_operator.plan.topics import (
    DeclaredTopics,
    DesiredTopic,
    TopicPlan,
    TopicSeen,
    TopicsSeen,
    TopicState,
    UnreadTopic,
    claims_on,
    exists,
    plan_topics,
    unseen,
)
from kraft_protocol.client.aio import Address, Client, UnreachableError
from kraft_protocol.errors import ErrorCode, error_name
from kraft_protocol.ids import parse_uuid, uuid_text
from kraft_protocol.wire import messages as m

TOPIC: Final = 2
DYNAMIC_TOPIC: Final = 1
"""ConfigSource of DescribeConfigs: the topic's own value."""
UNKNOWN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,  # no topic can have this name
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
EXISTS: Final = ErrorCode.TOPIC_ALREADY_EXISTS
TIMED_OUT: Final = ErrorCode.REQUEST_TIMED_OUT
"""The request may still take effect."""
TIMEOUT_MS: Final = 2500
A_REQUEST: Final = 500


def declared(
    resources: Iterable[Mapping[str, Any]], cluster: str, claims: Iterable[Claim] = ()
) -> tuple[DeclaredTopics, dict[str, TopicState]]:
    """Read the KRaftTopics of a namespace for one cluster. Also returns the states of malformed resources.

    `resources` must be all KRaftTopics of the namespace, because a topic of a missing resource may be deleted.
    """
    claimants = {(claim.resource, claim.uid) for claim in claims}
    found = declarations(resources, KRaftTopicSpec, cluster, claimants)
    unread, states = [], {}
    for one, message in found.malformed:
        name = one["metadata"]["name"]
        topic = str((one.get("spec") or {}).get("topicName") or name)
        states[name] = TopicState(False, "NotUnderstood", message)
        unread.append(UnreadTopic(name, topic, one.get("status", {}).get("topicId", "")))
    desired_topics = tuple(_desired(one, spec) for one, spec in found.desired)
    return DeclaredTopics(desired_topics, tuple(unread), found.there), states


def _desired(one: Mapping[str, Any], spec: KRaftTopicSpec) -> DesiredTopic:
    metadata, status = one["metadata"], one.get("status", {})
    # Older definitions have no `creating` field, but the reason.
    reason = next((condition["reason"] for condition in status.get("conditions", ())), "")
    return DesiredTopic(
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


async def look(client: Client, broker: Address, names: Sequence[str], cluster_id: str | None = None) -> TopicsSeen:
    """Read the topics of `names` that exist.

    Raises UnreachableError, also if a cluster other than `cluster_id` answers.
    """
    found: dict[str, TopicSeen] = {}
    hidden: dict[str, str] = {}
    for first in range(0, len(names), A_REQUEST):
        part = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in names[first : first + A_REQUEST]]
        request = m.MetadataRequest(part, allow_auto_topic_creation=False)
        answer: m.MetadataResponse = await client.request(broker, request)
        if cluster_id is not None and answer.cluster_id != cluster_id:
            raise UnreachableError(f"{broker} belongs to cluster {answer.cluster_id}, not to {cluster_id}")
        there = {one.name: one for one in answer.topics if one.name is not None and not one.error_code}
        for one in answer.topics:
            if one.name is not None and one.error_code and one.error_code not in UNKNOWN:
                hidden[one.name] = _hidden(one.name, "Describe", one.error_code)
        if not there:
            continue
        resources = [m.DescribeConfigsRequest.DescribeConfigsResource(TOPIC, name, None) for name in there]
        described: m.DescribeConfigsResponse = await client.request(broker, m.DescribeConfigsRequest(resources))
        for result in described.results:
            name = result.resource_name
            if result.error_code:
                hidden[name] = _hidden(name, "DescribeConfigs", result.error_code)
                continue
            found[name] = _seen(there[name], result)
    return TopicsSeen(found, hidden)


def _hidden(name: str, operation: str, error: int) -> str:
    if error == DENIED:
        text = f"the operator may not describe the topic {name}: allow its principal the operation {operation} on it"
        return f"{text}; until then the topic is neither created, changed nor deleted"
    return f"the cluster does not describe the topic {name} ({error_name(error)}): the operator sends the request again"


def _seen(
    topic: m.MetadataResponse.MetadataResponseTopic, result: m.DescribeConfigsResponse.DescribeConfigsResult
) -> TopicSeen:
    own = {c.name: c.value or "" for c in result.configs if c.config_source == DYNAMIC_TOPIC}
    partitions = topic.partitions
    # Replica counts change in the order of the partitions, so the last partition changes last.
    replicas = len(max(partitions, key=lambda one: one.partition_index).replica_nodes) if partitions else 0
    return TopicSeen(uuid_text(topic.topic_id), len(partitions), replicas, own, topic.is_internal)


Refusals = dict[str, tuple[int, str]]
"""Error code and message by topic."""


async def validate(client: Client, broker: Address, desired_topics: Sequence[DesiredTopic]) -> Refusals:
    """Check which topics the cluster would refuse to create. Raises UnreachableError."""
    return await _create(client, broker, desired_topics, validate_only=True, made={})


async def _create(
    client: Client,
    broker: Address,
    desired_topics: Sequence[DesiredTopic],
    *,
    validate_only: bool,
    made: dict[str, str],
) -> Refusals:
    """Create or validate topics. `made` gets the id of each topic that was created."""
    config = m.CreateTopicsRequest.CreatableTopicConfig
    topics = [
        m.CreateTopicsRequest.CreatableTopic(
            name=desired.topic,
            num_partitions=desired.partitions,
            replication_factor=-1 if desired.replicas is None else desired.replicas,
            configs=[config(*one) for one in desired.config.items()],
        )
        for desired in desired_topics
    ]
    refused: Refusals = {}
    if topics:
        request = m.CreateTopicsRequest(topics, TIMEOUT_MS, validate_only)
        answer: m.CreateTopicsResponse = await client.request(broker, request)
        for one in answer.topics:
            _note(refused, one.name or "", one)
            if not one.error_code and one.name is not None:
                made[one.name] = uuid_text(one.topic_id)
    return refused


async def carry_out(client: Client, broker: Address, plan: TopicPlan) -> Refusals:
    """Carry out the batch and return the refusals. Raises UnreachableError.

    `plan.made` gets the ids of created topics.
    """
    refused = await _create(client, broker, plan.create, validate_only=False, made=plan.made)
    if plan.grow:
        grown = [
            m.CreatePartitionsRequest.CreatePartitionsTopic(name, count, None) for name, count in plan.grow.items()
        ]
        partitions: m.CreatePartitionsResponse = await client.request(
            broker, m.CreatePartitionsRequest(grown, TIMEOUT_MS, validate_only=False)
        )
        for grew in partitions.results:
            _note(refused, grew.name, grew)
    if plan.configure:
        resources = [altered(TOPIC, name, put, remove) for name, (put, remove) in plan.configure.items()]
        configs: m.IncrementalAlterConfigsResponse = await client.request(
            broker, m.IncrementalAlterConfigsRequest(resources)
        )
        for result in configs.responses:
            _note(refused, result.resource_name, result)
    if plan.delete:
        gone = [m.DeleteTopicsRequest.DeleteTopicState(None, parse_uuid(claim.id)) for claim in plan.delete.values()]
        deleted: m.DeleteTopicsResponse = await client.request(
            broker, m.DeleteTopicsRequest(gone, timeout_ms=TIMEOUT_MS)
        )
        names = {claim.id: topic for topic, claim in plan.delete.items()}
        for one in deleted.responses:
            _note(refused, names[uuid_text(one.topic_id)], one, UNKNOWN)
    return refused


async def _plan_topics(
    source: MetadataSource, declared: DeclaredTopics, claims: Mapping[str, Claim], cluster_id: str | None
) -> tuple[int, TopicPlan, bool]:
    """Read the topics from a broker, again with a proof if anything owned is not seen. Raises UnreachableError.

    Returns the broker, the next batch, and whether anything waits for a proof.
    """
    names = sorted({*claims, *(desired.topic for desired in declared.desired_topics)})
    broker, seen = await source.first(lambda address: look(source.client, address, names, cluster_id))
    if unseen(declared, claims.values(), seen) and await source.is_complete(broker):
        seen = replace(await look(source.client, source.address(broker), names, cluster_id), complete=True)
    waits = not seen.complete and unseen(declared, claims.values(), seen)
    return broker, plan_topics(declared, seen, claims), waits


async def steady(
    source: MetadataSource, declared: DeclaredTopics, claims: Mapping[str, Claim], cluster_id: str | None
) -> Mapping[str, TopicState] | None:
    """The states of the resources; None if a batch is due or a claim changes. Raises UnreachableError."""
    _, plan, waits = await _plan_topics(source, declared, claims, cluster_id)
    return None if waits or plan.count or plan.claims != claims else plan.states


class TopicKeeper(Protocol):
    """Keeps claims between passes and reports states."""

    async def remember(self, claims: Mapping[str, Claim]) -> None:
        """Record the claims. Called before any topic changes."""

    async def report_states(self, states: Mapping[str, TopicState]) -> None:
        """Report states by the name of the resource."""

    async def gone(self, claims: Collection[Claim]) -> set[str]:
        """Return the topics that certainly have no resource. Announces their deletion before it returns."""

    async def kept(self, claims: Collection[Claim]) -> None:
        """Report topics that stay although their claims end."""


class TopicPass(NamedTuple):
    """One observation of the topics, and one batch of changes."""

    source: MetadataSource
    keeper: TopicKeeper
    cluster_id: str | None = None

    async def run(self, declared: DeclaredTopics, claims: Mapping[str, Claim]) -> bool:
        """Observe, plan and carry out a batch. Returns whether another pass is due soon. Raises UnreachableError."""
        broker, plan, _ = await _plan_topics(self.source, declared, claims, self.cluster_id)
        client, address = self.source.client, self.source.address(broker)
        if plan.claims != claims:
            await self.keeper.kept(plan.kept.values())
            await self.keeper.remember(plan.claims)
        refused = await validate(client, address, plan.create)
        plan.create = [desired for desired in plan.create if desired.topic not in refused]
        if plan.delete:
            gone = await self.keeper.gone(plan.delete.values())
            plan.delete = {topic: claim for topic, claim in plan.delete.items() if topic in gone}
        # The statuses name the topics before they are created. So after a crash, the operator knows them as its own.
        await self.keeper.report_states(_before(declared, plan, refused))
        if plan.count:
            refused = await carry_out(client, address, plan)
            if (made := claims_on(plan)) != plan.claims:
                await self.keeper.remember(made)
            await self.keeper.report_states(_refused(declared, plan, refused))
            return plan.count > len(refused)
        return False


def _before(declared: DeclaredTopics, plan: TopicPlan, refused: Refusals) -> dict[str, TopicState]:
    """States before the batch. The state of a changing topic is reported once the change was observed."""
    states = dict(plan.states) | _refused(declared, plan, refused)
    for desired in declared.desired_topics:
        state = states.get(desired.resource)
        if state is not None and state.reason == "Changing" and set(state.managed) <= desired.managed:
            states.pop(desired.resource)
    return states


def _refused(declared: DeclaredTopics, plan: TopicPlan, refused: Refusals) -> dict[str, TopicState]:
    states = {}
    for desired in declared.desired_topics:
        if desired.topic not in refused or plan.states[desired.resource].reason in {"TopicTaken", "InternalTopic"}:
            continue
        error, message = refused[desired.topic]
        if error == EXISTS and not desired.creating:
            states[desired.resource] = exists(desired)
        elif error != EXISTS:
            state = plan.states[desired.resource]
            late = error == TIMED_OUT and state.creating
            states[desired.resource] = replace(state, ready=False, reason="Refused", message=message, creating=late)
    return states


def _note(refused: Refusals, topic: str, result: Any, allowed: Collection[int] = ()) -> None:
    error = result.error_code
    if error and error not in allowed:
        refused.setdefault(topic, (error, result.error_message or error_name(error)))


def status(state: TopicState, resource: Mapping[str, Any], now: str) -> dict[str, Any]:
    """The whole status of a resource, with the time of its condition's last change."""
    before: Mapping[str, Any] = resource.get("status", {})
    found = ready_status(state.ready, state.reason, state.message, resource, now)
    if not state.known:
        return {**before, **found}
    found |= {"managedConfig": list(state.managed), "creating": state.creating}
    if state.topic is not None:
        found |= {
            "topicId": state.topic.id,
            "partitions": state.topic.partitions,
            "replicas": state.topic.replicas,
        }
    return found
