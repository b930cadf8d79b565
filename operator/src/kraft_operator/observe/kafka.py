"""Views of the quorum and the metadata, as the cluster's own nodes return them.

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

from kraft_operator.kafka import schemas
from kraft_operator.kafka.client import Address, Client, UnreachableError
from kraft_operator.observe.status import NodeStatus, node_status
from kraft_operator.plan.observed import (
    CORDONED,
    THROTTLED,
    Broker,
    Directory,
    Disks,
    Metadata,
    Partition,
    Quorum,
    Replica,
    Seen,
)
from kraft_operator.specs.properties import CONTROLLER_LISTENER

TOPIC: Final = 2
BROKER: Final = 4
DYNAMIC_DEFAULT: Final = 3
"""ConfigSource of DescribeConfigs: a cluster-wide dynamic value."""
MIN_ISR: Final = "min.insync.replicas"
METADATA_TOPIC: Final = "__cluster_metadata"
TOPICS_A_REQUEST: Final = 1000
"""The most topics whose configuration one request reads. It keeps requests below a few hundred kilobytes."""
UNKNOWN_MS: Final = 2**31
UNKNOWN_TOPIC: Final = 3
DENIED: Final = 29
"""TOPIC_AUTHORIZATION_FAILED."""
NAMED_MAX: Final = 5
"""The most topics that a message names."""

Described = tuple[Quorum, int, int]
"""The quorum, the end of the leader's log, and the leader's high watermark."""
Clock = Callable[[], float]
"""Monotonic seconds."""


class Commits:
    """Tells whether the voters that a leader describes are certainly committed.

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
        """Ask each of `brokers` for its log directories. A broker that does not answer becomes unknown.

        `name_of` returns the name of the volume that a path is on.
        """
        asked_at = self._clock()

        async def ask(node: int, address: Address) -> tuple[int, Disks] | None:
            try:
                return node, await disks_as_told(self._client, node, address, name_of)
            except UnreachableError:
                return None

        answers = await asyncio.gather(*(ask(node, address) for node, address in brokers.items()))
        self._disks = {one[0]: (asked_at, one[1]) for one in answers if one is not None}

    @property
    def disks(self) -> dict[int, Seen[Disks]]:
        """Log directories by broker, for the brokers that answered the last request."""
        return {node: self._seen(view) for node, view in self._disks.items()}

    @property
    def quorum(self) -> Seen[Quorum]:
        """The last view of the quorum, with its age."""
        return self._seen(self._quorum)

    @property
    def metadata(self) -> Seen[Metadata]:
        """The last view of the metadata, with its age."""
        return self._seen(self._metadata)

    def _seen(self, view: Any) -> Seen[Any]:
        return Seen() if view is None else Seen(view[1], max(0, round((self._clock() - view[0]) * 1000)))

    async def _look_at_quorum(self, controllers: Mapping[int, Address]) -> None:
        """Ask the former leader first, and all controllers if that is not enough."""
        leader = None if self._quorum is None else self._quorum[1].leader
        if leader is not None and leader in controllers and await self._quorum_of({leader: controllers[leader]}):
            return
        await self._quorum_of(controllers)

    async def _quorum_of(self, controllers: Mapping[int, Address]) -> bool:
        asked_at = self._clock()
        answers = await _all(quorum_as_told(self._client, one) for one in controllers.values())
        if not answers:
            return False
        best, end, high_watermark = max(answers, key=lambda answer: answer[0].epoch)
        if self._quorum is not None and best.epoch < self._quorum[1].epoch:
            return False
        self._quorum = (asked_at, replace(best, changing=self._commits.changing(best, end, high_watermark)))
        return True

    async def _look_at_metadata(self, brokers: Mapping[int, Address], statuses: Mapping[int, Address]) -> None:
        """Ask up to three brokers, the least behind first, until a broker that the leader knows answers."""
        known = self.quorum.value
        behind = {} if known is None else {i: r.behind_ms for i, r in {**known.voters, **known.observers}.items()}
        for node in sorted(brokers, key=lambda i: (behind.get(i, UNKNOWN_MS), i != self._hint, i))[:3]:
            asked_at = self._clock()
            try:
                metadata = await metadata_as_told(self._client, brokers[node], statuses.get(node))
            except UnreachableError:
                continue
            if node in behind:
                self._metadata = (asked_at - behind[node] / 1000, metadata)
                self._hint = node
                return


async def _all(questions: Iterable[Awaitable[Described | None]]) -> list[Described]:
    answers = await asyncio.gather(*questions)
    return [answer for answer in answers if answer is not None]


async def quorum_as_told(client: Client, controller: Address) -> Described | None:
    """Ask one controller for the quorum. Returns None if it does not lead or does not answer.

    The result has the end of the leader's log and its high watermark, too.
    """
    topics = [{"name": METADATA_TOPIC, "partitions": [{"index": 0}]}]
    try:
        answer = await client.ask(controller, schemas.DESCRIBE_QUORUM, topics=topics)
    except UnreachableError:
        return None
    if answer["error"] or not answer["topics"] or not answer["topics"][0]["partitions"]:
        return None
    told = answer["topics"][0]["partitions"][0]
    if told["error"]:
        return None
    now = next((one["caught_up"] for one in told["voters"] if one["id"] == told["leader"]), -1)
    end = next((one["end"] for one in told["voters"] if one["id"] == told["leader"]), told["high_watermark"])

    hosts = {
        one["id"]: f"{listener['host']}:{listener['port']}"
        for one in answer.get("nodes", ())
        for listener in one["listeners"]
        if listener["name"] == CONTROLLER_LISTENER
    }

    def replica(one: dict[str, Any]) -> Replica:
        # All times are of the leader's clock. A replica that never caught up has -1.
        behind_ms = max(0, now - one["caught_up"]) if one["caught_up"] >= 0 and now >= 0 else UNKNOWN_MS
        return Replica(max(0, end - one["end"]), behind_ms, one["directory"], hosts.get(one["id"], ""))

    try:
        cluster = await client.ask(controller, schemas.DESCRIBE_CLUSTER, operations=False, endpoints=2, fenced=False)
    except UnreachableError:
        return None
    # A replaced disk stays on the list for five more minutes. The replica that fetched last is the running one.
    fetched = {one["id"]: one["fetched"] for one in told["voters"]}
    observers = sorted(told["observers"], key=lambda one: one["fetched"])
    quorum = Quorum(
        told["leader"],
        told["epoch"],
        {one["id"]: replica(one) for one in told["voters"]},
        {one["id"]: replica(one) for one in observers if one["fetched"] > fetched.get(one["id"], -1)},
        "" if cluster["error"] else cluster["cluster_id"],
    )
    return quorum, end, told["high_watermark"]


async def metadata_as_told(client: Client, broker: Address, status: Address | None = None) -> Metadata:
    """Ask one broker for the metadata. Raises UnreachableError, also if an answer is an error.

    `status` is the address where it serves `/status`. Without it, silently hidden topics are not noticed.
    """
    cluster = await client.ask(broker, schemas.DESCRIBE_CLUSTER, operations=False, endpoints=1, fenced=True)
    if cluster["error"]:
        raise UnreachableError(f"{broker}: DescribeCluster: {cluster['message'] or cluster['error']}")
    before = await node_status(status) if status is not None else None
    topics = await client.ask(broker, schemas.METADATA, topics=None, auto_create=False, operations=False)
    after = await node_status(status) if status is not None else None
    names = [topic["name"] for topic in topics["topics"] if topic["name"] and not topic["error"]]
    hidden = {topic["name"]: topic["error"] for topic in topics["topics"] if topic["name"] and topic["error"]}
    min_isr, dynamic, throttled = await _configurations(client, broker, names, hidden)
    missing = _left_out(len(topics["topics"]), before, after, broker)
    moves = await client.ask(broker, schemas.LIST_REASSIGNMENTS, timeout_ms=2000, topics=None)
    if moves["error"]:
        raise UnreachableError(f"{broker}: ListPartitionReassignments: {moves['message'] or moves['error']}")
    moving = {(topic["name"], one["index"]) for topic in moves["topics"] for one in topic["partitions"]}
    versions = await client.ask(broker, schemas.API_VERSIONS, software="kraft-operator", software_version="1")
    return Metadata(
        {one["id"]: Broker(one["fenced"], one["rack"] or "") for one in cluster["brokers"]},
        tuple(
            Partition(
                topic["name"],
                one["index"],
                tuple(one["replicas"]),
                frozenset(one["isr"]),
                min_isr[topic["name"]],
                (topic["name"], one["index"]) in moving,
            )
            for topic in topics["topics"]
            if topic["name"] in min_isr
            for one in topic["partitions"]
        ),
        dynamic,
        {one["name"]: one["most"] for one in versions.get("finalized", ())},
        {one["name"]: one["most"] for one in versions.get("supported", ())},
        throttled,
        _unseen(hidden, missing),
        cluster["cluster_id"],
    )


async def disks_as_told(client: Client, node: int, broker: Address, name_of: Callable[[str], str]) -> Disks:
    """Ask one broker for its log directories; `name_of` maps a path to its volume. Raises UnreachableError.

    An answer that is an error raises, too. The cordons are read first: a cordoned directory that is found empty
    afterwards stays empty.
    """
    resources = [{"type": BROKER, "name": str(node), "keys": [CORDONED]}]
    answer = await client.ask(
        broker, schemas.DESCRIBE_CONFIGS, resources=resources, synonyms=False, documentation=False
    )
    values = {}
    for result in answer["results"]:
        if result["error"]:
            raise UnreachableError(f"{broker}: DescribeConfigs: {result['message'] or result['error']}")
        values = {one["name"]: one["value"] or "" for one in result["configs"]}
    told = await client.ask(broker, schemas.DESCRIBE_LOG_DIRS, topics=None)
    if told["error"]:
        raise UnreachableError(f"{broker}: DescribeLogDirs: error {told['error']}")
    found = {}
    for one in told["results"]:
        replicas, coming = {}, set()
        for topic in one["topics"]:
            for partition in topic["partitions"]:
                key = (topic["name"], partition["index"])
                if partition["future"]:
                    coming.add(key)
                else:
                    replicas[key] = partition["size"]
        usable = -1 if one["error"] else one["usable"]
        found[name_of(one["path"])] = Directory(one["path"], replicas, frozenset(coming), one["error"], usable)
    cordoned = frozenset(path for word in values.get(CORDONED, "").split(",") if (path := word.strip()))
    return Disks(found, frozenset(one.path for one in found.values()) if "*" in cordoned else cordoned)


def _left_out(shown: int, before: NodeStatus | None, after: NodeStatus | None, broker: Address) -> int:
    """The number of topics that the broker did not show. Raises UnreachableError while topics come and go."""
    counts = {one.topics for one in (before, after) if one is not None and one.topics is not None}
    if not counts or shown in counts:
        return 0
    if len(counts) > 1 or max(counts) < shown:
        raise UnreachableError(f"{broker}: Metadata: topics come and go while it is asked")
    return max(counts) - shown


def _unseen(hidden: Mapping[str, int], missing: int) -> str:
    """A message about unknown partitions; empty if all partitions are known."""
    parts = []
    denied = sorted(name for name, error in hidden.items() if error == DENIED)
    others = [f"{name} (error {error})" for name, error in sorted(hidden.items()) if error != DENIED]
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
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


async def _configurations(
    client: Client, broker: Address, names: list[str], hidden: dict[str, int]
) -> tuple[dict[str, int], dict[str, str], frozenset[str]]:
    """Read min.insync.replicas by topic, the cluster-wide dynamic values, and the completely throttled topics.

    Adds topics whose configuration the broker does not return to `hidden`, with the error code.
    """
    throttled = set()
    min_isr: dict[str, int] = {}
    dynamic: dict[str, str] = {}
    for first in range(0, len(names) + 1, TOPICS_A_REQUEST):
        part = names[first : first + TOPICS_A_REQUEST]
        resources = [{"type": TOPIC, "name": name, "keys": [MIN_ISR, *THROTTLED]} for name in part]
        if first == 0:
            resources.append({"type": BROKER, "name": "", "keys": None})
        answer = await client.ask(
            broker, schemas.DESCRIBE_CONFIGS, resources=resources, synonyms=False, documentation=False
        )
        for result in answer["results"]:
            if result["type"] == TOPIC and not result["error"]:
                values = {c["name"]: c["value"] for c in result["configs"]}
                min_isr[result["name"]] = int(values.get(MIN_ISR, 1))
                if all(values.get(name) == "*" for name in THROTTLED):
                    throttled.add(result["name"])
            elif result["type"] == TOPIC:
                if result["error"] != UNKNOWN_TOPIC:  # the topic was deleted meanwhile
                    hidden[result["name"]] = result["error"]
            elif result["type"] == BROKER:
                if result["error"]:
                    raise UnreachableError(f"{broker}: DescribeConfigs: {result['message'] or result['error']}")
                dynamic = {c["name"]: c["value"] or "" for c in result["configs"] if c["source"] == DYNAMIC_DEFAULT}
    return min_isr, dynamic, frozenset(throttled)
