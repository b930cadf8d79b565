"""Views of the quorum and the metadata, from the cluster's own nodes.

The leader describes the quorum (KIP-836, DescribeQuorum). Answers of leaders of older epochs are ignored. A broker
describes the metadata. The time that this broker is behind the quorum is added to the age of its answer.

Kafka's protocol silently leaves out topics that the client may not describe. The broker's `/status` counts all topics.
`Metadata.unseen` reports the difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kraft_operator.observe.status import StatusReport, node_status, reported_migration
from kraft_operator.plan.model.observed import (
    CORDONED,
    THROTTLED,
    Aged,
    Broker,
    ControllerMigration,
    Directory,
    Disks,
    Metadata,
    Partition,
    Quorum,
    Replica,
)
from kraft_operator.protocol import SOFTWARE
from kraft_operator.specs.properties import CONTROLLER_LISTENER
from kraft_protocol.client.aio import Address, Client, UnreachableError
from kraft_protocol.errors import ErrorCode, error_name
from kraft_protocol.wire import messages as m

TOPIC: Final = 2
BROKER: Final = 4
BROKERS: Final = 1
"""The endpoint type of DescribeCluster that brokers answer."""
CONTROLLERS: Final = 2
"""The endpoint type of DescribeCluster that controllers answer (KIP-919)."""
DYNAMIC_DEFAULT: Final = 3
"""ConfigSource of DescribeConfigs: a cluster-wide dynamic value."""
MIN_ISR: Final = "min.insync.replicas"
METADATA_TOPIC: Final = "__cluster_metadata"
TOPICS_A_REQUEST: Final = 1000
"""The most topics in one request for configurations. It keeps requests below a few hundred kilobytes."""
UNKNOWN_MS: Final = 2**31
UNKNOWN_TOPIC: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NAMED_MAX: Final = 5
"""The most topics that a message names."""

Described = tuple[Quorum, int, int]
"""The quorum, the end of the leader's log, and the leader's high watermark."""
Clock = Callable[[], float]
"""Monotonic seconds."""


class Commits:
    """Decides whether the voters that a leader describes are certainly committed.

    The answer has no offset of the record with the voters. The record is in the log when a leader's voters are first
    seen. So the voters are committed once the high watermark has reached the end that the log had then.
    """

    def __init__(self) -> None:
        self._voters: object = None
        self._end = 0

    def changing(self, found: Quorum, end: int, high_watermark: int) -> bool:
        """Whether the voters of `found` may not be committed. `end` is the end of the leader's log."""
        voters = frozenset((i, one.directory, one.address) for i, one in found.voters.items())
        key = (found.leader, found.epoch, voters)
        if key != self._voters:
            self._voters, self._end = key, end
        return high_watermark < self._end


class View:
    """The last views of one cluster."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._quorum: tuple[float, Quorum] | None = None
        self._commits = Commits()
        self._metadata: tuple[float, Metadata] | None = None
        self._hint: int | None = None
        self._disks: dict[int, tuple[float, Disks]] = {}
        self._migration: tuple[float, dict[int, ControllerMigration]] | None = None

    async def look(
        self,
        controllers: Mapping[int, Address],
        brokers: Mapping[int, Address],
        statuses: Mapping[int, Address] | None = None,
    ) -> None:
        """Refresh the views of the quorum and the metadata. Without an answer, the former view stays and ages.

        Arguments are addresses by node id. `statuses` has the addresses where brokers serve `/status`.
        """
        self._client.keep({*controllers.values(), *brokers.values()})
        await self._look_at_quorum(controllers)
        await self._look_at_metadata(brokers, statuses or {})

    async def look_at_disks(self, brokers: Mapping[int, Address], name_of: Callable[[str], str]) -> None:
        """Request the log directories from each of `brokers`. A broker that does not answer becomes unknown.

        `name_of` returns the name of the volume that a path is on.
        """
        asked_at = self._clock()

        async def ask(node: int, address: Address) -> tuple[int, Disks] | None:
            try:
                return node, await reported_disks(self._client, node, address, name_of)
            except UnreachableError:
                return None

        answers = await asyncio.gather(*(ask(node, address) for node, address in brokers.items()))
        self._disks = {one[0]: (asked_at, one[1]) for one in answers if one is not None}

    async def look_at_migration(self, controllers: Mapping[int, Address]) -> None:
        """Refresh the state of the migration. `controllers` has the addresses where controllers serve `/status`."""
        asked_at = self._clock()
        self._migration = (asked_at, await reported_migration(controllers))

    @property
    def migration(self) -> Aged[Mapping[int, ControllerMigration]]:
        """The last state of the migration by controller, with its age; without controllers that did not answer."""
        return self._seen(self._migration)

    @property
    def disks(self) -> dict[int, Aged[Disks]]:
        """Log directories by broker, for the brokers that answered the last request."""
        return {node: self._seen(view) for node, view in self._disks.items()}

    @property
    def quorum(self) -> Aged[Quorum]:
        """The last view of the quorum, with its age."""
        return self._seen(self._quorum)

    @property
    def metadata(self) -> Aged[Metadata]:
        """The last view of the metadata, with its age."""
        return self._seen(self._metadata)

    @property
    def describing(self) -> int | None:
        """The broker that described the metadata last; None before the first answer."""
        return self._hint

    def _seen(self, view: Any) -> Aged[Any]:
        """A view with its age; empty without a view."""
        return Aged() if view is None else Aged(view[1], max(0, round((self._clock() - view[0]) * 1000)))

    async def _look_at_quorum(self, controllers: Mapping[int, Address]) -> None:
        """Query the former leader first, and all controllers if this is not enough."""
        leader = None if self._quorum is None else self._quorum[1].leader
        if leader is not None and leader in controllers and await self._quorum_of({leader: controllers[leader]}):
            return
        await self._quorum_of(controllers)

    async def _quorum_of(self, controllers: Mapping[int, Address]) -> bool:
        asked_at = self._clock()
        answers = await _all(reported_quorum(self._client, one) for one in controllers.values())
        if not answers:
            return False
        best, end, high_watermark = max(answers, key=lambda answer: answer[0].epoch)
        if self._quorum is not None and best.epoch < self._quorum[1].epoch:
            return False
        self._quorum = (asked_at, replace(best, changing=self._commits.changing(best, end, high_watermark)))
        return True

    async def _look_at_metadata(self, brokers: Mapping[int, Address], statuses: Mapping[int, Address]) -> None:
        """Query up to three brokers, the least behind first, until a broker that the leader knows answers."""
        known = self.quorum.value
        behind = {} if known is None else {i: r.behind_ms for i, r in {**known.voters, **known.observers}.items()}
        for node in sorted(brokers, key=lambda i: (behind.get(i, UNKNOWN_MS), i != self._hint, i))[:3]:
            asked_at = self._clock()
            try:
                metadata = await reported_metadata(self._client, brokers[node], statuses.get(node))
            except UnreachableError:
                continue
            if node in behind:
                self._metadata = (asked_at - behind[node] / 1000, metadata)
                self._hint = node
                return


async def _all(questions: Iterable[Awaitable[Described | None]]) -> list[Described]:
    answers = await asyncio.gather(*questions)
    return [answer for answer in answers if answer is not None]


async def reported_quorum(client: Client, controller: Address) -> Described | None:
    """Request the quorum from a controller. Returns None if it does not lead or does not answer.

    The result has the end of the leader's log and its high watermark, too.
    """
    asked = m.DescribeQuorumRequest.TopicData(METADATA_TOPIC, [m.DescribeQuorumRequest.PartitionData(0)])
    try:
        answer: m.DescribeQuorumResponse = await client.request(controller, m.DescribeQuorumRequest([asked]))
    except UnreachableError:
        return None
    if answer.error_code or not answer.topics or not answer.topics[0].partitions:
        return None
    partition = answer.topics[0].partitions[0]
    if partition.error_code:
        return None
    leader = next((one for one in partition.current_voters if one.replica_id == partition.leader_id), None)
    now, end = (
        (-1, partition.high_watermark) if leader is None else (leader.last_caught_up_timestamp, leader.log_end_offset)
    )

    hosts = {
        one.node_id: f"{listener.host}:{listener.port}"
        for one in answer.nodes
        for listener in one.listeners
        if listener.name == CONTROLLER_LISTENER
    }

    def replica(one: m.DescribeQuorumResponse.ReplicaState) -> Replica:
        # All times are of the leader's clock. A replica that never caught up has -1.
        caught_up = one.last_caught_up_timestamp
        behind_ms = max(0, now - caught_up) if caught_up >= 0 and now >= 0 else UNKNOWN_MS
        behind = max(0, end - one.log_end_offset)
        return Replica(behind, behind_ms, one.replica_directory_id, hosts.get(one.replica_id, ""))

    try:
        request = m.DescribeClusterRequest(endpoint_type=CONTROLLERS)
        cluster: m.DescribeClusterResponse = await client.request(controller, request)
    except UnreachableError:
        return None
    # A replaced disk stays on the list for five more minutes. The replica that fetched last is the running one.
    fetched = {one.replica_id: one.last_fetch_timestamp for one in partition.current_voters}
    observers = sorted(partition.observers, key=lambda one: one.last_fetch_timestamp)
    quorum = Quorum(
        partition.leader_id,
        partition.leader_epoch,
        {one.replica_id: replica(one) for one in partition.current_voters},
        {
            one.replica_id: replica(one)
            for one in observers
            if one.last_fetch_timestamp > fetched.get(one.replica_id, -1)
        },
        "" if cluster.error_code else cluster.cluster_id,
    )
    return quorum, end, partition.high_watermark


async def reported_metadata(client: Client, broker: Address, status: Address | None = None) -> Metadata:
    """Request the metadata from a broker. Raises UnreachableError, also if an answer is an error.

    `status` is the address where it serves `/status`. Without it, silently hidden topics are not noticed.
    """
    described = m.DescribeClusterRequest(endpoint_type=BROKERS, include_fenced_brokers=True)
    cluster: m.DescribeClusterResponse = await client.request(broker, described)
    if cluster.error_code:
        raise UnreachableError(f"{broker}: DescribeCluster: {cluster.error_message or error_name(cluster.error_code)}")
    before = await node_status(status) if status is not None else None
    request = m.MetadataRequest(topics=None, allow_auto_topic_creation=False)
    answer: m.MetadataResponse = await client.request(broker, request)
    after = await node_status(status) if status is not None else None
    names = [topic.name for topic in answer.topics if topic.name and not topic.error_code]
    hidden = {topic.name: topic.error_code for topic in answer.topics if topic.name and topic.error_code}
    min_isr, dynamic, throttled = await _configurations(client, broker, names, hidden)
    missing = _left_out(len(answer.topics), before, after, broker)
    listed = m.ListPartitionReassignmentsRequest(timeout_ms=2000, topics=None)
    moves: m.ListPartitionReassignmentsResponse = await client.request(broker, listed)
    if moves.error_code:
        raise UnreachableError(
            f"{broker}: ListPartitionReassignments: {moves.error_message or error_name(moves.error_code)}"
        )
    moving = {(topic.name, one.partition_index) for topic in moves.topics for one in topic.partitions}
    versions: m.ApiVersionsResponse = await client.request(
        broker, m.ApiVersionsRequest(SOFTWARE.name, SOFTWARE.version)
    )
    return Metadata(
        {one.broker_id: Broker(one.is_fenced, one.rack or "") for one in cluster.brokers},
        tuple(
            Partition(
                topic.name,
                one.partition_index,
                tuple(one.replica_nodes),
                frozenset(one.isr_nodes),
                min_isr[topic.name],
                (topic.name, one.partition_index) in moving,
            )
            for topic in answer.topics
            if topic.name in min_isr
            for one in topic.partitions
        ),
        dynamic,
        {one.name: one.max_version_level for one in versions.finalized_features},
        {one.name: one.max_version for one in versions.supported_features},
        throttled,
        _unseen(hidden, missing),
        cluster.cluster_id,
    )


async def reported_disks(client: Client, node: int, broker: Address, name_of: Callable[[str], str]) -> Disks:
    """Request the log directories from a broker; `name_of` maps a path to its volume. Raises UnreachableError.

    An answer that is an error raises, too. The cordons are read first: a cordoned directory that is found empty
    afterwards stays empty.
    """
    resources = [m.DescribeConfigsRequest.DescribeConfigsResource(BROKER, str(node), [CORDONED])]
    answer: m.DescribeConfigsResponse = await client.request(broker, m.DescribeConfigsRequest(resources))
    values = {}
    for result in answer.results:
        if result.error_code:
            raise UnreachableError(
                f"{broker}: DescribeConfigs: {result.error_message or error_name(result.error_code)}"
            )
        values = {config.name: config.value or "" for config in result.configs}
    found_logs: m.DescribeLogDirsResponse = await client.request(broker, m.DescribeLogDirsRequest(topics=None))
    if found_logs.error_code:
        raise UnreachableError(f"{broker}: DescribeLogDirs: {error_name(found_logs.error_code)}")
    found = {}
    for one in found_logs.results:
        replicas, coming = {}, set()
        for topic in one.topics:
            for partition in topic.partitions:
                key = (topic.name, partition.partition_index)
                if partition.is_future_key:
                    coming.add(key)
                else:
                    replicas[key] = partition.partition_size
        usable = -1 if one.error_code else one.usable_bytes
        found[name_of(one.log_dir)] = Directory(one.log_dir, replicas, frozenset(coming), one.error_code, usable)
    cordoned = frozenset(path for word in values.get(CORDONED, "").split(",") if (path := word.strip()))
    return Disks(found, frozenset(one.path for one in found.values()) if "*" in cordoned else cordoned)


def _left_out(shown: int, before: StatusReport | None, after: StatusReport | None, broker: Address) -> int:
    """The number of topics that the broker did not show. Raises UnreachableError while topics come and go."""
    counts = {one.topics for one in (before, after) if one is not None and one.topics is not None}
    if not counts or shown in counts:
        return 0
    if len(counts) > 1 or max(counts) < shown:
        raise UnreachableError(f"{broker}: Metadata: topics come and go during the request")
    return max(counts) - shown


def _unseen(hidden: Mapping[str, int], missing: int) -> str:
    """A message about unknown partitions; empty if all partitions are known."""
    parts = []
    denied = sorted(name for name, error in hidden.items() if error == DENIED)
    others = [f"{name} ({error_name(error)})" for name, error in sorted(hidden.items()) if error != DENIED]
    if missing:
        parts.append(f"{missing} topics are hidden from the operator")
    if denied:
        parts.append(f"the operator may not describe the topics {_some(denied)}")
    if missing or denied:
        parts.append("allow its principal Describe and DescribeConfigs on all topics")
    if others:
        parts.append(f"the broker does not describe these topics: {_some(others)}")
    return "; ".join(parts)


def _some(names: Sequence[str]) -> str:
    """The first names as text, and the number of others."""
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


async def _configurations(
    client: Client, broker: Address, names: list[str], hidden: dict[str, int]
) -> tuple[dict[str, int], dict[str, str], frozenset[str]]:
    """Read min.insync.replicas by topic, the cluster-wide dynamic values, and the completely throttled topics.

    If the broker does not return the configuration of a topic, the topic is added to `hidden` with the error code.
    """
    throttled = set()
    min_isr: dict[str, int] = {}
    dynamic: dict[str, str] = {}
    for first in range(0, len(names) + 1, TOPICS_A_REQUEST):
        part = names[first : first + TOPICS_A_REQUEST]
        resource = m.DescribeConfigsRequest.DescribeConfigsResource
        resources = [resource(TOPIC, name, [MIN_ISR, *THROTTLED]) for name in part]
        if first == 0:
            resources.append(resource(BROKER, "", None))
        answer: m.DescribeConfigsResponse = await client.request(broker, m.DescribeConfigsRequest(resources))
        for result in answer.results:
            name, error = result.resource_name, result.error_code
            if result.resource_type == TOPIC and not error:
                values = {c.name: c.value for c in result.configs}
                min_isr[name] = int(values.get(MIN_ISR) or 1)
                if all(values.get(key) == "*" for key in THROTTLED):
                    throttled.add(name)
            elif result.resource_type == TOPIC:
                if error != UNKNOWN_TOPIC:  # the topic was deleted meanwhile
                    hidden[name] = error
            elif result.resource_type == BROKER:
                if error:
                    raise UnreachableError(f"{broker}: DescribeConfigs: {result.error_message or error_name(error)}")
                dynamic = {c.name: c.value or "" for c in result.configs if c.config_source == DYNAMIC_DEFAULT}
    return min_isr, dynamic, frozenset(throttled)
