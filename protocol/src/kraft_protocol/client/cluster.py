"""A cluster on blocking sockets: its brokers, leaders and offsets. Its methods retry. `topology` keeps its metadata.

After a retriable error or a broken connection the client refreshes its metadata and retries, with growing pauses, for
at most `Settings.retry_s`. The final error has the text of the last attempt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, TypeVar

from kraft_protocol.client import requests as m
from kraft_protocol.client.backoff import Backoff
from kraft_protocol.client.blocking import BlockingConnection
from kraft_protocol.client.errors import RETRIABLE, TOPIC_AUTHORIZATION_FAILED, BrokerError, ClientError
from kraft_protocol.client.security import NO_SECURITY, ClientSecurity
from kraft_protocol.client.session import Software, Versions
from kraft_protocol.client.topology import UNKNOWN_TOPIC, Topology, by_leader, epoch_of, leader_of

T = TypeVar("T")
MADE_S: Final = 60.0
"""Seconds to wait for the creation of a topic, as Kafka's producers do (max.block.ms)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to reach a cluster, and timeouts in seconds; `retry_s` limits all attempts together."""

    bootstrap: str
    """host:port, several separated by commas."""
    client_id: str = "kraft-pipeline"
    connect_s: float = 10.0
    request_s: float = 30.0
    retry_s: float = 120.0
    rack: str = ""
    """The client's rack: it reads from a replica in this rack if the brokers select it (KIP-392); "": always from
    leaders."""
    software: tuple[str, str] = ("kraft-pipeline", "0.1.0")
    """Name and version of the client's software (KIP-511)."""
    security: ClientSecurity = NO_SECURITY

    def servers(self) -> list[tuple[str, int]]:
        """Parse `bootstrap` to hosts and ports. Raises ValueError for a malformed address."""
        found = []
        for server in self.bootstrap.split(","):
            host, colon, port = server.strip().rpartition(":")
            if not colon or not host or not port.isdecimal() or int(port) > 0xFFFF:
                raise ValueError(f"kafka.bootstrap.servers: {server.strip()!r} is not host:port")
            found.append((host.strip("[]"), int(port)))
        return found

    def connect(self, host: str, port: int, versions: Versions = m.VERSIONS) -> BlockingConnection:
        """Open a connection to a broker that serves `versions`. Raises OSError, and ClientError."""
        software = Software(self.client_id, *self.software)
        return BlockingConnection(
            host,
            port,
            software=software,
            versions=versions,
            connect_s=self.connect_s,
            request_s=self.request_s,
            security=self.security,
        )


class RetryBudget:
    """Pauses between attempts of an operation, until `seconds` have passed; then `failed` raises."""

    __slots__ = ("_backoff", "_what")

    def __init__(self, what: str, seconds: float) -> None:
        self._what = what
        self._backoff = Backoff(seconds, time.monotonic())

    def failed(self, error: Exception) -> None:
        """Sleep before the next attempt, or raise ClientError from `error` if the time is over."""
        pause = self._backoff.pause(time.monotonic())
        if pause is None:
            message = f"{self._what}: {error} (tried for {self._backoff.seconds:g} s)"
            raise ClientError(message) from error
        time.sleep(pause)


class Cluster:
    """Connections to a cluster, opened on demand. A context manager. One thread only."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.topology = Topology()
        self._bootstrap = settings.servers()
        self._connections: dict[tuple[str, int], BlockingConnection] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def cluster_id(self) -> str:
        """The cluster's id in the last metadata, "" before the first."""
        return self.topology.cluster_id

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def topics(self, names: Collection[str] | None = None, *, create: bool = False) -> dict[str, m.TopicInfo]:
        """Fetch metadata of the named topics, or of all (None). Missing topics are missing in the result.

        `create`: brokers start to create missing topics if `auto.create.topics.enable` is set. Raises BrokerError if a
        topic must not be read.
        """
        answer = self.retried("metadata", lambda: self._metadata(names, create=create))
        return self.topology.learn_topics(answer, names)

    def topic_ids(self, names: Collection[str]) -> dict[str, set[bytes]]:
        """The ids of topics in the metadata of all brokers; empty if all brokers report that a topic is missing.

        Queries every broker, because the metadata of a single broker may be stale. Raises ClientError if a broker does
        not answer.
        """

        def attempt() -> dict[str, set[bytes]]:
            found: dict[str, set[bytes]] = {name: set() for name in names}
            for host, port in self.addresses():
                with self.dropping(self._connect(host, port)) as connection:
                    answer = m.read_metadata(connection.request(m.metadata(sorted(names), create=False)))
                for topic in answer.topics:
                    if topic.name in found and (topic.error == 0 or topic.partitions):
                        found[topic.name].add(topic.id)
                    elif topic.error not in {0, UNKNOWN_TOPIC}:
                        raise BrokerError(topic.error, f"topic {topic.name}")
            return found

        return self.retried("metadata", attempt, lambda: self.topics(names))

    def topic(self, name: str) -> m.TopicInfo:
        """A topic from the last metadata, fetched if it is unknown. Raises BrokerError (3) if it does not exist."""
        known = self.topology.topics.get(name) or self.topics([name]).get(name)
        if known is None:
            raise BrokerError(UNKNOWN_TOPIC, f"topic {name}")
        return known

    def ensure_topic(self, name: str) -> m.TopicInfo:
        """As `topic`, but waits for brokers to create a missing topic, at most MADE_S seconds.

        Raises ClientError if they do not.
        """

        def attempt() -> m.TopicInfo:
            found = self.topology.topics.get(name) or self.topics([name], create=True).get(name)
            if found is None:
                raise BrokerError(UNKNOWN_TOPIC, f"topic {name}")
            return found

        return self.retried(f"topic {name}", attempt, seconds=min(self.settings.retry_s, MADE_S))

    def offsets(self, wanted: Mapping[tuple[str, int], int], *, committed: bool = False) -> dict[tuple[str, int], int]:
        """Look up offsets by topic and partition: the first at or after a Unix time in ms, m.EARLIEST or m.LATEST.

        -1 if no record is at or after the time. `committed`: LATEST is the last stable offset.
        """
        return {key: answer.offset for key, answer in self.offsets_with_epochs(wanted, committed=committed).items()}

    def offsets_with_epochs(
        self, wanted: Mapping[tuple[str, int], int], *, committed: bool = False, grace_s: float | None = None
    ) -> dict[tuple[str, int], m.OffsetAnswer]:
        """As `offsets`, with the leader epochs.

        With `grace_s`, partitions are left out if their leaders do not answer within that time, unless that leaves no
        partition.
        """
        found: dict[tuple[str, int], m.OffsetAnswer] = {}

        def attempt() -> dict[tuple[str, int], m.OffsetAnswer]:
            errors: list[OSError | BrokerError] = []
            for leader, keys in self._group_by_leader([key for key in wanted if key not in found], errors).items():
                body = m.list_offsets({key: wanted[key] for key in keys}, committed=committed)
                try:
                    with self.dropping(self.connection(leader)) as connection:
                        answers = m.read_list_offsets(connection.request(body))
                except (OSError, BrokerError) as e:
                    errors.append(e)
                    continue
                for (topic, partition), answer in answers.items():
                    if answer.error:
                        errors.append(BrokerError(answer.error, f"offsets of {topic}-{partition}"))
                    else:
                        found[topic, partition] = answer
            for error in sorted(errors, key=lambda e: isinstance(e, BrokerError) and e.code in RETRIABLE):
                raise error
            return found

        try:
            return self.retried(
                "offsets", attempt, lambda: self.topics({topic for topic, _ in wanted}), seconds=grace_s
            )
        except BrokerError:
            raise
        except ClientError:
            if grace_s is None or not found:
                raise
            return found

    def _group_by_leader(
        self, keys: Collection[tuple[str, int]], errors: list[OSError | BrokerError]
    ) -> dict[int, list[tuple[str, int]]]:
        """Group partitions by leader; adds an error to `errors` for each partition without a leader."""
        leaders = {}
        for key in keys:
            try:
                leaders[key] = self.leader(*key)
            except BrokerError as e:
                errors.append(e)
        return by_leader(leaders)

    def find_truncations(self, read: Mapping[tuple[str, int], tuple[int, int]]) -> dict[tuple[str, int], int]:
        """Find logs that were truncated below the read position. `read`: offset and leader epoch of the read position.

        Returns the end of the common log, only for partitions that diverge (KIP-320). There an unclean election
        truncated the log, and the epoch ends below the offset in the current leader's log.
        """
        ends: dict[tuple[str, int], int] = {}

        def attempt() -> dict[tuple[str, int], int]:
            for leader, keys in by_leader({key: self.leader(*key) for key in read if key not in ends}).items():
                body = m.offset_for_leader_epoch({key: (self.epoch(*key), read[key][1]) for key in keys})
                with self.dropping(self.connection(leader)) as connection:
                    answers = m.read_offset_for_leader_epoch(connection.request(body))
                for (topic, partition), answer in answers.items():
                    if answer.error:
                        raise BrokerError(answer.error, f"leader epochs of {topic}-{partition}")
                    ends[topic, partition] = answer.offset
            return {key: end for key, end in ends.items() if 0 <= end < read[key][0]}

        return self.retried("leader epochs", attempt, lambda: self.topics({topic for topic, _ in read})) if read else {}

    def epoch(self, topic: str, partition: int) -> int:
        """The leader epoch in the last metadata, -1 if it is unknown."""
        return epoch_of(self.topic(topic), partition)

    def leader(self, topic: str, partition: int) -> int:
        """The leader's node id in the last metadata. Raises BrokerError if the partition has no leader."""
        return leader_of(self.topic(topic), partition)

    def coordinator(self, name: str, *, transactional: bool = False) -> BlockingConnection:
        """A connection to the coordinator of a group or a transactional id. Raises OSError, and BrokerError."""
        with self.dropping(self.any_connection()) as connection:
            body = m.find_coordinator(name, transactional=transactional)
            found = m.read_find_coordinator(connection.request(body))
        broker = self.topology.coordinator(found, f"{'transaction' if transactional else 'group'} {name}")
        return self._connect(broker.host, broker.port)

    def config(self, topics: Sequence[str], key: str) -> dict[str, str]:
        """The value of one configuration key of each topic. Raises BrokerError if it must not be read."""

        def attempt() -> dict[str, tuple[int, str]]:
            with self.dropping(self.any_connection()) as connection:
                return m.read_describe_configs(connection.request(m.describe_configs(topics, key)))

        answers = self.retried("configurations", attempt)
        for topic, (error, _) in answers.items():
            if error:
                right = ", which needs DESCRIBE_CONFIGS on the topic" if error == TOPIC_AUTHORIZATION_FAILED else ""
                raise BrokerError(error, f"{key} of topic {topic}{right}")
        return {topic: value for topic, (_, value) in answers.items()}

    def address(self, node: int) -> str:
        """host:port of a broker for messages, or a text that it is unreachable."""
        broker = self.topology.brokers.get(node)
        return f"broker {node}, which is unreachable" if broker is None else f"{broker.host}:{broker.port}"

    def addresses(self) -> list[tuple[str, int]]:
        """Hosts and ports of the brokers in the last metadata."""
        return self.topology.addresses()

    def connection(self, node: int) -> BlockingConnection:
        """A connection to a broker, reused if one is open. Raises OSError, and BrokerError for an unknown broker."""
        broker = self.topology.broker(node)
        return self._connect(broker.host, broker.port)

    def any_connection(self) -> BlockingConnection:
        """A connection to any reachable broker. Raises OSError."""
        error: OSError = ConnectionError(f"no broker of {self.settings.bootstrap} can be reached")
        for host, port in self._addresses():
            try:
                return self._connect(host, port)
            except OSError as e:
                error = ConnectionError(f"no broker of {self.settings.bootstrap} can be reached: {host}:{port}: {e}")
        raise error

    def drop(self, connection: BlockingConnection) -> None:
        """Close a connection after a failure, or if its responses are not needed."""
        connection.close()
        self._connections = {at: c for at, c in self._connections.items() if c is not connection}

    def retried(
        self,
        what: str,
        attempt: Callable[[], T],
        mend: Callable[[], object] = lambda: None,
        *,
        seconds: float | None = None,
    ) -> T:
        """Return the result of `attempt`. After a retriable error, call `mend` and retry, for `seconds` or `retry_s`.

        Raises BrokerError for other errors, and ClientError with `what` when the time is over.
        """
        budget = RetryBudget(what, self.settings.retry_s if seconds is None else seconds)
        mending = False
        while True:
            try:
                if mending:
                    mend()
                return attempt()
            except OSError as e:
                budget.failed(e)
            except BrokerError as e:
                if e.code not in RETRIABLE:
                    raise
                budget.failed(e)
            mending = True

    @contextmanager
    def dropping(self, connection: BlockingConnection) -> Iterator[BlockingConnection]:
        """A context that drops the connection on any error, because a response may still be in flight."""
        try:
            yield connection
        except BaseException:
            self.drop(connection)
            raise

    def _metadata(self, names: Collection[str] | None, *, create: bool = False) -> m.MetadataAnswer:
        """Fetch metadata from any broker. Raises OSError if no broker answers."""
        error: OSError = ConnectionError(f"no broker of {self.settings.bootstrap} can be reached")
        for host, port in self._addresses():
            try:
                with self.dropping(self._connect(host, port)) as connection:
                    body = m.metadata(None if names is None else sorted(names), create=create)
                    answer = m.read_metadata(connection.request(body))
            except OSError as e:
                error = ConnectionError(f"no broker of {self.settings.bootstrap} can be reached: {host}:{port}: {e}")
                continue
            if self.topology.learn_brokers(answer):
                return answer
        raise error

    def _addresses(self) -> list[tuple[str, int]]:
        return list(dict.fromkeys([*self.topology.addresses(), *self._bootstrap]))

    def _connect(self, host: str, port: int) -> BlockingConnection:
        connection = self._connections.get((host, port))
        if connection is not None and connection.waiting:
            self.drop(connection)
            connection = None
        if connection is None:
            connection = self._connections[host, port] = self.settings.connect(host, port)
        return connection
