"""A transport in memory and a listener with the test's handlers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from kraft_node.base.env import Env
from kraft_node.base.net import Outgoing
from kraft_node.runtime.disk import RealDisk
from kraft_node.runtime.env import RealRng
from kraft_node.server.connections.api_versions import with_connection_apis
from kraft_node.server.connections.buffers import BufferPool
from kraft_node.server.connections.connection import Connection
from kraft_node.server.connections.listener import ConnectionLimiter, Limits, ServerListener
from kraft_node.server.monitoring.metrics import RequestMetrics
from kraft_protocol.buffers import FileSlice


class Clock:
    def __init__(self) -> None:
        self.now = 1_000

    def monotonic_ms(self) -> int:
        return self.now

    wall_ms = monotonic_ms


class Timer:
    def __init__(self, cancel: Callable[[], None] = lambda: None) -> None:
        self.cancel = cancel


class Scheduler:
    """Runs scheduled calls on command."""

    def __init__(self) -> None:
        self.soon: list[tuple[Any, tuple[Any, ...]]] = []
        self.later: list[tuple[float, Any, tuple[Any, ...]]] = []

    def call_soon(self, function: Any, *args: Any) -> Timer:
        self.soon.append((function, args))
        return Timer()

    def call_later(self, delay_ms: float, function: Any, *args: Any) -> Timer:
        call = (delay_ms, function, args)
        self.later.append(call)
        return Timer(lambda: self._cancel(call))

    def _cancel(self, call: tuple[float, Any, tuple[Any, ...]]) -> None:
        if call in self.later:
            self.later.remove(call)

    def run(self) -> None:
        while self.soon:
            now, self.soon = self.soon, []
            for function, args in now:
                function(*args)

    def fire(self) -> None:
        now, self.later = self.later, []
        for _, function, args in now:
            function(*args)


class FakeTransport:
    """Keeps written data; `stuck` keeps all of it unsent."""

    def __init__(self, host: str = "10.0.0.1") -> None:
        self.peer = (host, 40_000)
        self.sent = bytearray()
        self.writes = 0
        self.reading = True
        self.closed = False
        self.aborted = False
        self.stuck = False
        self.unsent_bytes = 0

    @property
    def held_bytes(self) -> int:
        return 0 if self.aborted else self.unsent_bytes

    def write(self, parts: Sequence[Outgoing]) -> None:
        self.writes += 1
        for part in parts:
            data = part.read() if isinstance(part, FileSlice) else part
            self.sent += data
            if self.stuck:
                self.unsent_bytes += len(data)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def frames(self) -> list[bytes]:
        """The responses so far, without their lengths."""
        found = []
        position = 0
        while position < len(self.sent):
            (size,) = struct.unpack_from(">i", self.sent, position)
            found.append(bytes(self.sent[position + 4 : position + 4 + size]))
            position += 4 + size
        assert position == len(self.sent)
        return found

    def correlation_ids(self) -> list[int]:
        return [struct.unpack_from(">i", frame)[0] for frame in self.frames()]


class World:
    """A listener on fakes."""

    def __init__(self, handlers: dict[Any, Any], limits: Limits | None = None) -> None:
        from kraft_node.metadata.image import MetadataImage

        self.clock = Clock()
        self.scheduler = Scheduler()
        net: Any = None
        background: Any = None
        self.env = Env(self.clock, self.scheduler, RealRng(), RealDisk(), background, net)
        table, fallback = with_connection_apis(handlers, MetadataImage(), is_broker=True)
        self.metrics = RequestMetrics()
        self.pool = BufferPool()
        self.listener = ServerListener(
            self.env,
            "PLAINTEXT",
            table,
            gate=ConnectionLimiter(limits or Limits()),
            pool=self.pool,
            metrics=self.metrics,
            versions_fallback=fallback,
        )

    def connect(self, host: str = "10.0.0.1") -> tuple[Connection, FakeTransport]:
        transport = FakeTransport(host)
        connection = self.listener.accept(transport)
        return connection, transport  # type: ignore[return-value]


def feed(connection: Any, data: bytes, chunk: int = 1 << 30) -> None:
    """Give `data` to a connection as a transport would, at most `chunk` bytes a read."""
    position = 0
    while position < len(data):
        buffer = connection.get_buffer(-1)
        assert len(buffer) > 0
        count = min(len(buffer), chunk, len(data) - position)
        buffer[:count] = data[position : position + count]
        position += count
        connection.buffer_updated(count)
