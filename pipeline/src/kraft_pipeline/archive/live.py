"""Reads the metadata log from the controllers, like an observer (KIP-595, KIP-630), up to the high watermark.

Only the leader serves the log. Other controllers name the leader, since Apache Kafka 3.9 with its address. Without an
address, the controllers are tried one after the other. Brokers do not serve the log; they name the controllers
(DescribeQuorum, KIP-853).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa

from kraft_pipeline.archive.changes import ChangeDecoder
from kraft_pipeline.archive.errors import ArchiveError
from kraft_pipeline.codec.errors import CodecError
from kraft_protocol.client.blocking import BlockingConnection
from kraft_protocol.client.cluster import RetryBudget, Settings
from kraft_protocol.client.errors import BrokerError, ClientError
from kraft_protocol.client.fetch_session import FINAL_EPOCH
from kraft_protocol.client.security import ClientSecurity
from kraft_protocol.client.session import Versions
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import METADATA_TOPIC_ID as TOPIC_ID
from kraft_protocol.ids import METADATA_TOPIC_NAME as TOPIC
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

OF_CONTROLLERS: Final[Versions] = {
    ApiKey.FETCH: (17, 17),
    ApiKey.FETCH_SNAPSHOT: (0, 0),
    ApiKey.DESCRIBE_CLUSTER: (1, 1),
}
OF_BROKERS: Final[Versions] = {ApiKey.DESCRIBE_QUORUM: (2, 2), ApiKey.DESCRIBE_CLUSTER: (1, 1)}
"""Versions of the requests; the oldest Apache Kafka that serves all of them is 3.9."""

FETCH_BYTES: Final = 8 * 1024 * 1024
BROKERS_ENDPOINT: Final = 1
CONTROLLERS_ENDPOINT: Final = 2
_OTHER_EPOCH: Final = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH})
_PASSING: Final = _OTHER_EPOCH | {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.SNAPSHOT_NOT_FOUND,
}
"""Errors that are retried: no leader, another leader or epoch, a leader that does not know its high watermark yet, or a
snapshot that a newer one has replaced."""


class Fetched(NamedTuple):
    """A Fetch response."""

    error: int
    high_watermark: int
    leader: tuple[int, int]
    """Leader id and epoch; -1 if unknown."""
    snapshot: tuple[int, int] | None
    """End offset and epoch of the snapshot to read first."""
    diverging: tuple[int, int] | None
    """If the log does not have the given epoch: the epoch that it has instead, and its end offset. Otherwise None."""
    addresses: dict[int, tuple[str, int]]
    records: memoryview


class Controllers:
    """The quorum of a cluster; a context manager. Not thread-safe."""

    def __init__(
        self, settings: Settings, *, of_brokers: bool = False, controllers_security: ClientSecurity | None = None
    ) -> None:
        """`of_brokers`: the addresses are of brokers, which name the controllers.

        `controllers_security`: of connections to controllers; None: as of connections to brokers.
        """
        self._settings = settings
        self._of_controllers = replace(settings, security=controllers_security or settings.security)
        self._servers = settings.servers()
        self._of_brokers = of_brokers
        self._connection: BlockingConnection | None = None
        self._epoch = 0  # a response has the true epoch
        self._decoder = ChangeDecoder()
        self.cluster_id = ""

    def __enter__(self) -> Controllers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def read(self, start: int = 0, epoch: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield all committed records from offset `start`, in `changes.SCHEMA`; `epoch` is the epoch of the record
        before.

        If the log begins later, its first snapshot comes first. Raises ClientError if no leader answers for
        `Settings.retry_s`, ArchiveError if the log is another log.
        """
        while True:
            found, snapshot = self._answer(start, epoch)
            if found.diverging:
                raise ArchiveError(
                    f"{TOPIC} of the controllers has no record {start - 1} of epoch {epoch}: another log"
                )
            if snapshot is not None and found.snapshot is not None:
                start, epoch = found.snapshot
                yield from self._rows(snapshot, 0, 1 << 62, max(start - 1, 0))
                continue
            before = start
            for batch in self._rows(found.records, start, found.high_watermark, -1):
                start = batch.column("offset")[batch.num_rows - 1].as_py() + 1
                epoch = batch.column("epoch")[batch.num_rows - 1].as_py()
                yield batch
            if start in (before, found.high_watermark):
                return

    def first_difference(self, start: int, epoch: int) -> tuple[int, int] | None:
        """Return None if the log has record `start` - 1 of `epoch`, or begins later; else an epoch that it has, and its
        end.

        Raises ClientError as `read` does.
        """
        return self._answer(start, epoch, with_snapshot=False)[0].diverging

    def _answer(self, start: int, epoch: int, *, with_snapshot: bool = True) -> tuple[Fetched, bytes | None]:
        """The leader's response to a fetch, and the snapshot that it names."""
        self._epoch = max(self._epoch, epoch)  # Kafka refuses a leader epoch below the epoch of the last record
        budget = self._retry_budget()
        while True:
            try:
                found = self._fetch(start, epoch)
                if found.error:
                    self._follow(found)
                    raise BrokerError(found.error, TOPIC)
                if found.high_watermark < 0 and found.snapshot is None and found.diverging is None:
                    # A new leader does not know yet what is committed: to read nothing would look like the log's end.
                    raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, TOPIC)
                wanted = found.snapshot if with_snapshot else None
                return found, None if wanted is None else self._snapshot(*wanted)
            except (OSError, BrokerError) as e:
                if isinstance(e, BrokerError) and e.code not in _PASSING:
                    raise
                if isinstance(e, OSError):
                    self._next_server()
                budget.failed(e)

    def _rows(self, data: memoryview | bytes, start: int, end: int, snapshot: int) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._decoder.decode(data, start, end, snapshot)
        except CodecError as e:
            raise ArchiveError(f"{TOPIC} of the controllers: {e}") from e

    def _retry_budget(self) -> RetryBudget:
        return RetryBudget(f"the metadata log of {self._settings.bootstrap}", self._settings.retry_s)

    def _connected(self) -> BlockingConnection:
        if self._of_brokers:
            self._servers = self._ask_brokers()
            self._of_brokers = False
        if self._connection is None:
            self._connection = self._of_controllers.connect(*self._servers[0], OF_CONTROLLERS)
            if not self.cluster_id:
                self.cluster_id = _cluster_id(self._connection, CONTROLLERS_ENDPOINT)
        return self._connection

    def _ask_brokers(self) -> list[tuple[str, int]]:
        """The addresses of the controllers. Raises OSError if no broker can be reached.

        Brokers return the cluster id to every client; controllers require Alter on the cluster for it.
        """
        error: OSError = ConnectionError(f"no broker of {self._settings.bootstrap} can be reached")
        for host, port in self._servers:
            try:
                connection = self._settings.connect(host, port, OF_BROKERS)
            except OSError as e:
                error = e
                continue
            try:
                found = _read_quorum(connection.request(_describe_quorum()))
                self.cluster_id = _cluster_id(connection, BROKERS_ENDPOINT)
                return found
            finally:
                connection.close()
        raise error

    def _fetch(self, offset: int, epoch: int) -> Fetched:
        wanted = m.FetchRequest.FetchPartition(0, self._epoch, offset, epoch, partition_max_bytes=FETCH_BYTES)
        topic = m.FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=[wanted])
        request = m.FetchRequest(max_bytes=FETCH_BYTES, session_epoch=FINAL_EPOCH, topics=[topic])
        return _read_fetch(self._connected().request(request))

    def _follow(self, found: Fetched) -> None:
        """Adopt the epoch of a response, and connect to the leader that it names."""
        leader, epoch = found.leader
        self._epoch = max(self._epoch, epoch)
        address = found.addresses.get(leader)
        if address is not None:
            if address in self._servers:
                self._servers.remove(address)
            self._servers.insert(0, address)
            self.close()
        elif found.error not in _OTHER_EPOCH:
            self._next_server()

    def _next_server(self) -> None:
        self._servers.append(self._servers.pop(0))
        self.close()

    def _snapshot(self, end: int, epoch: int) -> bytes:
        """Fetch the bytes of a snapshot."""
        data = bytearray()
        while True:
            wanted = m.FetchSnapshotRequest.PartitionSnapshot(
                0, self._epoch, m.FetchSnapshotRequest.SnapshotId(end, epoch), len(data)
            )
            topic = m.FetchSnapshotRequest.TopicSnapshot(TOPIC, [wanted])
            request = m.FetchSnapshotRequest(max_bytes=FETCH_BYTES, topics=[topic])
            error, size, part = _read_snapshot(self._connected().request(request))
            if error:
                raise BrokerError(error, f"snapshot {end}-{epoch} of {TOPIC}")
            data += part
            if len(data) >= size:
                return bytes(data)
            if not len(part):
                raise ClientError(f"snapshot {end}-{epoch} of {TOPIC} ends at byte {len(data)} of {size}")


def _read_fetch(answer: m.FetchResponse) -> Fetched:
    if answer.error_code or not answer.responses or not answer.responses[0].partitions:
        return Fetched(answer.error_code or -1, -1, (-1, -1), None, None, {}, memoryview(b""))
    one = answer.responses[0].partitions[0]
    leader, snapshot, diverging = one.current_leader, one.snapshot_id, one.diverging_epoch
    return Fetched(
        one.error_code,
        one.high_watermark,
        (-1, -1) if leader is None else (leader.leader_id, leader.leader_epoch),
        None if snapshot is None or snapshot.end_offset < 0 else (snapshot.end_offset, snapshot.epoch),
        None if diverging is None or diverging.epoch < 0 else (diverging.epoch, diverging.end_offset),
        {node.node_id: (node.host, node.port) for node in answer.node_endpoints},
        memoryview(one.records or b""),  # type: ignore[arg-type]  # a response that was read has bytes
    )


def _read_snapshot(answer: m.FetchSnapshotResponse) -> tuple[int, int, memoryview]:
    """Error, size of the whole snapshot, and a part of it."""
    if answer.error_code or not answer.topics or not answer.topics[0].partitions:
        return answer.error_code or -1, 0, memoryview(b"")
    one = answer.topics[0].partitions[0]
    return one.error_code, one.size, memoryview(one.unaligned_records)  # type: ignore[arg-type]  # as above


def _describe_quorum() -> m.DescribeQuorumRequest:
    partition = m.DescribeQuorumRequest.PartitionData(0)
    return m.DescribeQuorumRequest([m.DescribeQuorumRequest.TopicData(TOPIC, [partition])])


def _read_quorum(answer: m.DescribeQuorumResponse) -> list[tuple[str, int]]:
    """The first address of each controller."""
    errors = [answer.error_code, *(one.error_code for topic in answer.topics for one in topic.partitions)]
    for error in errors:
        if error:
            raise BrokerError(error, "the quorum")
    found = [(node.listeners[0].host, node.listeners[0].port) for node in answer.nodes if node.listeners]
    if not found:
        raise ClientError("the brokers know no address of a controller: give the addresses of controllers")
    return found


def _cluster_id(connection: BlockingConnection, endpoint: int) -> str:
    answer: m.DescribeClusterResponse = connection.request(m.DescribeClusterRequest(endpoint_type=endpoint))
    if answer.error_code:
        raise BrokerError(answer.error_code, "the cluster")
    return answer.cluster_id
