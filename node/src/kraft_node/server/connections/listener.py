"""Listening sockets: they accept connections, limit their number, and close idle ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from kraft_node.server.connections.connection import Connection
from kraft_node.server.connections.connection_rates import Arrivals
from kraft_node.server.connections.context import NO_QUOTAS, ListenerContext, QuotaPolicy
from kraft_node.server.connections.security import NO_SECURITY, ListenerSecurity
from kraft_node.server.connections.unread import Unread

if TYPE_CHECKING:
    from kraft_node.base.env import Env
    from kraft_node.base.net import Listener, Receiver, Transport
    from kraft_node.base.request import Handler
    from kraft_node.server.connections.buffers import BufferPool
    from kraft_node.server.connections.connection_rates import ConnectionRates
    from kraft_node.server.monitoring.metrics import RequestMetrics
    from kraft_protocol.wire.api import ApiKey

log = logging.getLogger("kraft_node.server.connections.listener")

IDLE_SWEEPS: Final = 10
"""Checks of idle connections per idle time: closing is late by at most a tenth."""


class Limits:
    """The limits of one client, and of all together. Defaults are Kafka's."""

    __slots__ = (
        "connections_max",
        "connections_max_by_listener",
        "connections_max_per_ip",
        "idle_ms",
        "per_ip_overrides",
        "request_bytes_max",
    )

    def __init__(
        self,
        *,
        request_bytes_max: int = 100 << 20,
        connections_max: int = 2**31 - 1,
        connections_max_by_listener: Mapping[str, int] | None = None,
        connections_max_per_ip: int = 2**31 - 1,
        per_ip_overrides: Mapping[str, int] | None = None,
        idle_ms: int = 600_000,
    ) -> None:
        self.request_bytes_max = request_bytes_max
        self.connections_max = connections_max
        self.connections_max_by_listener = dict(connections_max_by_listener or {})
        self.connections_max_per_ip = connections_max_per_ip
        self.per_ip_overrides = dict(per_ip_overrides or {})
        self.idle_ms = idle_ms


class ConnectionLimiter:
    """Counts the connections of the whole node: in total, by listener, and by address across listeners.

    As in Kafka, connections of controllers do not count for the node's limit. Above the limit the inter-broker listener
    still accepts, and the client connection that was idle longest is closed.
    """

    __slots__ = (
        "_by_ip",
        "_by_listener",
        "_controllers",
        "_inter_broker",
        "count",
        "limits",
        "listeners",
        "rates",
        "unread",
    )

    unread: Unread
    """The unread answers; created with the first listener."""

    def __init__(self, limits: Limits, *, inter_broker: str | None = None, controllers: Iterable[str] = ()) -> None:
        """`inter_broker`: the listener of brokers, if clients use another listener."""
        self.limits = limits
        self.listeners: list[ServerListener] = []
        self._inter_broker = inter_broker
        self._controllers = frozenset(controllers)
        self._by_listener: dict[str, int] = {}
        self.rates: ConnectionRates | None = None
        """The limits of new connections per second."""
        self.count = 0
        self._by_ip: dict[str, int] = {}

    def enter(self, host: str, listener: str) -> str | None:
        """Count a connection from `host`. Returns the reason if it must be refused."""
        here = self._by_ip.get(host, 0)
        allowed = self.limits.per_ip_overrides.get(host, self.limits.connections_max_per_ip)
        if here >= allowed:
            return f"{here} connections of this address are open (max.connections.per.ip)"
        there = self._by_listener.get(listener, 0)
        if there >= self.limits.connections_max_by_listener.get(listener, there + 1):
            return f"{there} connections of this listener are open (listener.name.{listener.lower()}.max.connections)"
        counts = listener not in self._controllers
        if counts and self.count >= self.limits.connections_max:
            if listener != self._inter_broker:
                return f"{self.count} connections are open (max.connections)"
            self._close_quietest()
        self._by_ip[host] = here + 1
        self._by_listener[listener] = there + 1
        self.count += counts
        return None

    def connections(self) -> Iterator[Connection]:
        """The connections of all listeners."""
        return chain.from_iterable(listener.connections for listener in self.listeners)

    def _close_quietest(self) -> None:
        apart = {self._inter_broker, *self._controllers}
        clients = (c for listener in self.listeners if listener.name not in apart for c in listener.connections)
        quietest = min((c for c in clients if not c.closed), key=lambda c: c.last_active_ms, default=None)
        if quietest is not None:
            quietest.server.refused(quietest.peer_host, "a broker needs its connection (max.connections)")
            quietest.closed = True
            quietest.transport.abort()

    def leave(self, host: str, listener: str) -> None:
        """A connection from `host` has ended."""
        self.count -= listener not in self._controllers
        self._by_listener[listener] -= 1
        left = self._by_ip.get(host, 1) - 1
        if left:
            self._by_ip[host] = left
        else:
            self._by_ip.pop(host, None)


class _Refused:
    """The receiver of a refused connection until it is closed."""

    __slots__ = ()

    def get_buffer(self, size_hint: int) -> memoryview:  # noqa: ARG002
        return memoryview(bytearray(64))

    def buffer_updated(self, count: int) -> None: ...

    def drained(self) -> None: ...

    def connection_lost(self, error: OSError | None) -> None: ...


class ServerListener(ListenerContext):
    """Accepts connections under one listener name and passes their requests to `handlers`.

    With `held`, connections wait until `open_gates`: a broker binds its sockets before it may serve.
    `versions_fallback` makes the version 0 answer to an ApiVersions request of an unknown version. `gate`, `pool` and
    `metrics` belong to the node and are shared with its other listeners.
    """

    def __init__(
        self,
        env: Env,
        name: str,
        handlers: Mapping[ApiKey, Handler],
        *,
        gate: ConnectionLimiter,
        pool: BufferPool,
        metrics: RequestMetrics,
        versions_fallback: Callable[[], Any] | None = None,
        quotas: QuotaPolicy = NO_QUOTAS,
        held: bool = False,
        security: ListenerSecurity = NO_SECURITY,
    ) -> None:
        if not gate.listeners:
            gate.unread = Unread(env.scheduler.call_later, gate.connections)
        gate.listeners.append(self)
        super().__init__(
            env,
            name,
            handlers,
            pool=pool,
            metrics=metrics,
            unread=gate.unread,
            request_bytes_max=gate.limits.request_bytes_max,
            versions_fallback=versions_fallback,
            quotas=quotas,
            security=security,
        )
        self.gate = gate
        self.connections: dict[Connection, None] = {}
        """In the order of arrival: operations on all connections use this order."""
        self.held = held
        """While set, connections are accepted but not read."""
        self.accepted = 0
        self._arrivals = Arrivals(env, name, self._let_in)
        self._socket: Listener | None = None
        self._closed = False

    def listen(self, host: str, port: int) -> int:
        """Bind and accept. Returns the port, also if 0 was requested. Raises OSError."""
        self._socket = self.env.net.listen(host, port, self.accept)
        self._sweep_later()
        return self._socket.port

    def accept(self, transport: Transport) -> Receiver:
        """A new connection."""
        host = transport.peer[0]
        reason = self.gate.enter(host, self.name)
        if reason is not None:
            self.refused(host, reason)
            transport.abort()
            return _Refused()
        self.accepted += 1
        tls = self.security.tls
        return self._connect(transport) if tls is None else tls.serve(transport, self, self._connect)

    def _connect(self, transport: Transport) -> Connection:
        connection = Connection(self, transport, self.clock.monotonic_ms())
        self.connections[connection] = None
        if self.gate.rates is not None and self.gate.rates.is_limited:
            self._arrivals.add(connection, self.gate.rates)
        elif self.held:
            transport.pause_reading()
        return connection

    def _let_in(self, connection: Connection) -> None:
        """The connection's turn has come."""
        if not self.held:
            connection.transport.resume_reading()

    def open_gates(self) -> None:
        """Start serving."""
        self.held = False
        for connection in self.connections:
            if connection not in self._arrivals:
                connection.transport.resume_reading()

    def forget(self, connection: Connection) -> None:
        """The connection is closed."""
        if connection in self.connections:
            del self.connections[connection]
            self._arrivals.discard(connection)
            self.gate.leave(connection.peer_host, self.name)

    # Idle connections

    def _sweep_later(self) -> None:
        idle_ms = self.gate.limits.idle_ms
        delay_ms = min(60_000, max(100, idle_ms // IDLE_SWEEPS)) if idle_ms > 0 else 60_000
        due_ms = self.clock.monotonic_ms() + delay_ms
        self.env.scheduler.call_later(delay_ms, self._sweep, due_ms, delay_ms)

    def _sweep(self, due_ms: int, delay_ms: int) -> None:
        try:
            self._look_through(due_ms, delay_ms)
        finally:
            if not self._closed or self.connections:
                self._sweep_later()

    def _look_through(self, due_ms: int, delay_ms: int) -> None:
        self._refusals_before = self.refusals
        idle_ms = self.gate.limits.idle_ms
        now_ms = self.clock.monotonic_ms()
        if now_ms - due_ms > delay_ms:
            self._forgive(now_ms - due_ms, now_ms)
        if idle_ms > 0:
            for connection in [c for c in self.connections if c.idle_ms(now_ms) > idle_ms]:
                log.debug("idle connection closed peer=%s listener=%s", connection.peer_host, self.name)
                connection.expire()
        if not any(now_ms - c.last_active_ms < 10_000 for c in self.connections):
            self.pool.trim()

    def _forgive(self, stalled_ms: int, now_ms: int) -> None:
        """The node itself was paused: this does not make clients idle."""
        for connection in self.connections:
            connection.last_active_ms = min(now_ms, connection.last_active_ms + stalled_ms)

    # The end

    def stop_accepting(self) -> None:
        """Close the socket; open connections stay."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        """Close the socket and all connections, after their answers are sent."""
        self._closed = True
        self.stop_accepting()
        for connection in list(self.connections):
            connection.close()
