"""Reads the metadata log from the controllers, like an observer (KIP-595, KIP-630), up to the high watermark.

Only the leader serves the log. Other controllers name the leader, since Apache Kafka 3.9 with its address. Without an
address, the controllers are tried one after the other. Brokers do not serve the log; they name the controllers
(DescribeQuorum, KIP-853).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from kraft_pipeline.archive.changes import Decoder
from kraft_pipeline.archive.errors import ArchiveError
from kraft_pipeline.client import BrokerError, ClientError, Settings
from kraft_pipeline.client import messages as m
from kraft_pipeline.client.buffers import Reader, Writer
from kraft_pipeline.client.cluster import Patience
from kraft_pipeline.client.connection import Connection
from kraft_pipeline.codec.errors import CodecError

TOPIC: Final = "__cluster_metadata"
TOPIC_ID: Final = (1).to_bytes(16, "big")
DESCRIBE_QUORUM: Final = 55
FETCH_SNAPSHOT: Final = 59
DESCRIBE_CLUSTER: Final = 60
OF_CONTROLLERS: Final = {m.FETCH: 17, m.API_VERSIONS: 3, FETCH_SNAPSHOT: 0, DESCRIBE_CLUSTER: 1}
OF_BROKERS: Final = {m.API_VERSIONS: 3, DESCRIBE_QUORUM: 2}
"""Versions of the requests; the oldest Apache Kafka that serves all of them is 3.9."""

FETCH_BYTES: Final = 8 * 1024 * 1024
CONTROLLERS_ENDPOINT: Final = 2
_PASSING: Final = frozenset({5, 6, 7, 41, 74, 75, 91})
"""Errors that are retried: no leader, another leader or epoch, or a leader that does not know its high watermark
yet."""
_SNAPSHOT_NOT_FOUND: Final = 98
_DIVERGING, _LEADER, _SNAPSHOT = range(3)
"""Tags of a partition in a Fetch response."""


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

    def __init__(self, settings: Settings, *, of_brokers: bool = False) -> None:
        """`of_brokers`: the addresses are those of brokers, which name the controllers."""
        self._settings = settings
        self._servers = settings.servers()
        self._of_brokers = of_brokers
        self._connection: Connection | None = None
        self._epoch = 0  # a response has the true epoch
        self._decoder = Decoder()
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
        """Yield all committed records from offset `start`, in `changes.SCHEMA`; `epoch` is that of the record before.

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

    def parted(self, start: int, epoch: int) -> tuple[int, int] | None:
        """Return None if the log has record `start` - 1 of `epoch`, or begins later; else an epoch that it has, and its
        end.

        Raises ClientError as `read` does.
        """
        return self._answer(start, epoch, with_snapshot=False)[0].diverging

    def _answer(self, start: int, epoch: int, *, with_snapshot: bool = True) -> tuple[Fetched, bytes | None]:
        """The leader's response to a fetch, and the snapshot that it names."""
        self._epoch = max(self._epoch, epoch)  # Kafka refuses a leader epoch below that of the last record
        patience = self._patience()
        while True:
            try:
                found = self._fetch(start, epoch)
                if found.error:
                    self._follow(found)
                    raise BrokerError(found.error, TOPIC)
                wanted = found.snapshot if with_snapshot else None
                return found, None if wanted is None else self._snapshot(*wanted)
            except (OSError, BrokerError) as e:
                if isinstance(e, BrokerError) and e.code not in _PASSING | {_SNAPSHOT_NOT_FOUND}:
                    raise
                if isinstance(e, OSError):
                    self._next_server()
                patience.failed(e)

    def _rows(self, data: memoryview | bytes, start: int, end: int, snapshot: int) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._decoder.decode(data, start, end, snapshot)
        except CodecError as e:
            raise ArchiveError(f"{TOPIC} of the controllers: {e}") from e

    def _patience(self) -> Patience:
        return Patience(f"the metadata log of {self._settings.bootstrap}", self._settings.retry_s)

    def _connected(self) -> Connection:
        if self._of_brokers:
            self._servers = self._ask_brokers()
            self._of_brokers = False
        if self._connection is None:
            self._connection = self._connect(*self._servers[0], OF_CONTROLLERS)
            if not self.cluster_id:
                self.cluster_id = _cluster_id(self._connection)
        return self._connection

    def _connect(self, host: str, port: int, versions: dict[int, int]) -> Connection:
        given = self._settings
        times = {"connect_s": given.connect_s, "request_s": given.request_s}
        return Connection(host, port, client_id=given.client_id, versions=versions, **times)

    def _ask_brokers(self) -> list[tuple[str, int]]:
        """The addresses of the controllers. Raises OSError if no broker can be reached."""
        error: OSError = ConnectionError(f"no broker of {self._settings.bootstrap} can be reached")
        for host, port in self._servers:
            try:
                connection = self._connect(host, port, OF_BROKERS)
            except OSError as e:
                error = e
                continue
            try:
                return _read_quorum(connection.ask(DESCRIBE_QUORUM, _describe_quorum()))
            finally:
                connection.close()
        raise error

    def _fetch(self, offset: int, epoch: int) -> Fetched:
        body = Writer().i32(0).i32(0).i32(FETCH_BYTES).i8(0).i32(0).i32(-1).length(1).uuid(TOPIC_ID).length(1)
        body.i32(0).i32(self._epoch).i64(offset).i32(epoch).i64(-1).i32(FETCH_BYTES).no_tags()
        body.no_tags().length(0).string("").no_tags()
        return _read_fetch(self._connected().ask(m.FETCH, body))

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
        elif found.error not in {74, 75}:
            self._next_server()

    def _next_server(self) -> None:
        self._servers.append(self._servers.pop(0))
        self.close()

    def _snapshot(self, end: int, epoch: int) -> bytes:
        """Fetch the bytes of a snapshot."""
        data = bytearray()
        while True:
            body = Writer().i32(-1).i32(FETCH_BYTES).length(1).string(TOPIC).length(1)
            body.i32(0).i32(self._epoch).i64(end).i32(epoch).no_tags().i64(len(data)).no_tags()
            error, size, part = _read_snapshot(self._connected().ask(FETCH_SNAPSHOT, body.no_tags().no_tags()))
            if error:
                raise BrokerError(error, f"snapshot {end}-{epoch} of {TOPIC}")
            data += part
            if len(data) >= size:
                return bytes(data)
            if not len(part):
                raise ClientError(f"snapshot {end}-{epoch} of {TOPIC} ends at byte {len(data)} of {size}")


def _tagged(reader: Reader) -> dict[int, Reader]:
    """Read the tagged fields at the end of a struct."""
    found = {}
    for _ in range(reader.uvarint()):
        tag = reader.uvarint()
        found[tag] = Reader(reader.view(reader.uvarint()))
    return found


def _read_fetch(reader: Reader) -> Fetched:
    reader.i32()
    error = reader.i16()
    reader.i32()
    if error or not reader.length():
        return Fetched(error or -1, -1, (-1, -1), None, None, {}, memoryview(b""))
    reader.uuid()
    reader.length()
    reader.i32()
    error, high = reader.i16(), reader.i64()
    for _ in range(2):
        reader.i64()
    for _ in range(reader.length()):
        reader.i64()
        reader.i64()
        reader.tags()
    reader.i32()
    records = reader.view(reader.length())
    tags = _tagged(reader)
    leader = (tags[_LEADER].i32(), tags[_LEADER].i32()) if _LEADER in tags else (-1, -1)
    snapshot = (tags[_SNAPSHOT].i64(), tags[_SNAPSHOT].i32()) if _SNAPSHOT in tags else None
    diverging = (tags[_DIVERGING].i32(), tags[_DIVERGING].i64()) if _DIVERGING in tags else None
    reader.tags()
    addresses = {}
    nodes = _tagged(reader).get(0)
    for _ in range(nodes.length() if nodes is not None else 0):
        assert nodes is not None
        node, host, port = nodes.i32(), nodes.string(), nodes.i32()
        nodes.string()
        nodes.tags()
        addresses[node] = (host, port)
    return Fetched(error, high, leader, snapshot, diverging, addresses, records)


def _read_snapshot(reader: Reader) -> tuple[int, int, memoryview]:
    """Error, size of the whole snapshot, and a part of it."""
    reader.i32()
    error = reader.i16()
    if error or not reader.length():
        return error or -1, 0, memoryview(b"")
    reader.string()
    reader.length()
    reader.i32()
    error = reader.i16()
    reader.i64()
    reader.i32()
    reader.tags()
    size = reader.i64()
    reader.i64()
    return error, size, reader.view(reader.length())


def _describe_quorum() -> Writer:
    return Writer().length(1).string(TOPIC).length(1).i32(0).no_tags().no_tags().no_tags()


def _read_quorum(reader: Reader) -> list[tuple[str, int]]:
    """The first address of each controller."""
    error = reader.i16()
    reader.string()
    if error:
        raise BrokerError(error, "the quorum")
    for _ in range(reader.length()):
        reader.string()
        for _ in range(reader.length()):
            reader.i32()
            error = reader.i16()
            reader.string()
            if error:
                raise BrokerError(error, "the quorum")
            reader.view(16)  # leader, its epoch, the high watermark
            for _ in range(2):  # voters, observers
                for _ in range(reader.length()):
                    reader.view(4 + 16 + 3 * 8)
                    reader.tags()
            reader.tags()
        reader.tags()
    found = []
    for _ in range(reader.length()):
        reader.i32()
        listeners = []
        for _ in range(reader.length()):
            reader.string()
            host, port = reader.string(), reader.i16() & 0xFFFF
            reader.tags()
            listeners.append((host, port))
        reader.tags()
        found += listeners[:1]
    if not found:
        raise ClientError("the brokers know no address of a controller: give those of controllers")
    return found


def _cluster_id(connection: Connection) -> str:
    reader = connection.ask(DESCRIBE_CLUSTER, Writer().i8(0).i8(CONTROLLERS_ENDPOINT).no_tags())
    reader.i32()
    error = reader.i16()
    reader.string()
    if error:
        raise BrokerError(error, "the cluster")
    reader.i8()
    return reader.string()
