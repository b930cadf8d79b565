"""Limits of new connections per second: for the node, for a listener (KIP-402), for an address (KIP-612).

As in Kafka: above the rate of the node or the listener, new connections wait, one after the other. Above the rate of
its address, a connection is closed after a delay, so that the client retries later. The node's rate does not hold back
the inter-broker listener, if other listeners exist.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kraft_node.base.rates import Rate

if TYPE_CHECKING:
    from kraft_node.base.env import Env
    from kraft_node.metadata.image import MetadataView
    from kraft_node.server.connections.connection import Connection

UNLIMITED: Final = 2**31 - 1
IP: Final = "ip"
KEY: Final = "connection_creation_rate"
ADDRESSES_MAX: Final = 10_000
"""Maximum of tracked addresses; beyond it, the longest idle address starts again."""


class ConnectionRates:
    """The rates of one node. `is_limited` is False while nothing needs to be counted."""

    __slots__ = (
        "_by_address",
        "_by_listener",
        "_image",
        "_limits",
        "_node",
        "_node_limit",
        "_protected",
        "_window_ms",
        "_windows",
        "addresses_limited",
        "is_limited",
    )

    def __init__(self, image: MetadataView, windows: int, window_ms: int, protected: str | None) -> None:
        """`protected` is the listener that the node's own rate does not hold back, if any."""
        self.is_limited = False
        self.addresses_limited = False
        self._image = image
        self._windows = windows
        self._window_ms = window_ms
        self._protected = protected
        self._node_limit = UNLIMITED
        self._limits: Mapping[str, int] = {}
        self._node = Rate(windows, window_ms)
        self._by_listener: dict[str, Rate] = {}
        self._by_address: OrderedDict[str, Rate] = OrderedDict()

    def configure(self, node_limit: int, by_listener: Mapping[str, int]) -> None:
        """Apply `max.connection.creation.rate` of the node, and of listeners with their own value."""
        self._node_limit = node_limit
        self._limits = by_listener
        self._decide()

    def quotas_changed(self) -> None:
        """Quotas of addresses may have changed."""
        self.addresses_limited = any(entity[0][0] == IP for entity, _ in self._image.quotas.items())
        self._decide()

    def _decide(self) -> None:
        self.is_limited = self.addresses_limited or min(self._node_limit, *self._limits.values(), UNLIMITED) < UNLIMITED

    def wait_ms(self, listener: str, now_ms: int) -> int:
        """Count a connection. Returns how long it must wait, in milliseconds."""
        wait_ms = 0
        for rate, limit in self._rates_of(listener):
            rate.record(1, now_ms)
            wait_ms = max(wait_ms, rate.throttle_ms(limit, now_ms))
        return min(wait_ms, self._window_ms)

    def close_ms(self, listener: str, address: str, now_ms: int) -> int:
        """0 if a connection from `address` may stay; else the delay after which it must be closed, uncounted."""
        limit = self._limit_of(address)
        if limit is None:
            return 0
        rate = self._by_address.pop(address, None) or Rate(self._windows, self._window_ms)
        if len(self._by_address) >= ADDRESSES_MAX:
            self._by_address.popitem(last=False)
        self._by_address[address] = rate
        rate.record(1, now_ms)
        close_ms = min(rate.throttle_ms(limit, now_ms), self._window_ms)
        if close_ms > 0:
            for counted in (rate, *(one for one, _ in self._rates_of(listener))):
                counted.record(-1, now_ms)
        return close_ms

    def _rates_of(self, listener: str) -> list[tuple[Rate, int]]:
        """The rates that count a connection of the listener, each with its limit."""
        own = self._by_listener.setdefault(listener, Rate(self._windows, self._window_ms))
        found = [(own, self._limits.get(listener, UNLIMITED))]
        return found if listener == self._protected else [(self._node, self._node_limit), *found]

    def _limit_of(self, address: str) -> float | None:
        """The limit of new connections per second of an address; None without a quota."""
        for entity in (((IP, address),), ((IP, None),)):
            limit = (self._image.quotas.get(entity) or {}).get(KEY)
            if limit is not None:
                return limit
        return None


class Arrivals:
    """The connections of one listener that are not read yet: they wait for their turn, or for being closed."""

    __slots__ = ("_doomed", "_env", "_held", "_let_in", "_listener", "_waiting")

    def __init__(self, env: Env, listener: str, let_in: Callable[[Connection], None]) -> None:
        self._env = env
        self._listener = listener
        self._let_in = let_in
        self._waiting: dict[Connection, None] = {}
        """In the order of arrival; at most `max.connections`."""
        self._doomed: set[Connection] = set()
        self._held = False
        """Whether all wait for the first connection, or for one that has been closed meanwhile."""

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._waiting or connection in self._doomed

    def add(self, connection: Connection, rates: ConnectionRates) -> None:
        """Stop reading a new connection until its turn. If it need not wait, its turn comes before this returns."""
        connection.transport.pause_reading()
        self._waiting[connection] = None
        if not self._held:
            self._go_on(rates)

    def discard(self, connection: Connection) -> None:
        """The connection was closed."""
        self._waiting.pop(connection, None)
        self._doomed.discard(connection)

    def _go_on(self, rates: ConnectionRates) -> None:
        """Give each connection its turn; a connection that must wait holds up the connections after it."""
        while self._waiting:
            first = next(iter(self._waiting))
            wait_ms = rates.wait_ms(self._listener, self._env.clock.monotonic_ms())
            if wait_ms > 0:
                self._held = True
                self._env.scheduler.call_later(wait_ms, self._waited, first, rates)
                return
            self._decide(first, rates)

    def _waited(self, connection: Connection, rates: ConnectionRates) -> None:
        self._held = False
        if connection in self._waiting:
            self._decide(connection, rates)
        self._go_on(rates)

    def _decide(self, connection: Connection, rates: ConnectionRates) -> None:
        del self._waiting[connection]
        close_ms = rates.close_ms(self._listener, connection.peer_host, self._env.clock.monotonic_ms())
        if close_ms > 0:
            self._doomed.add(connection)
            self._env.scheduler.call_later(close_ms, connection.close)
        else:
            self._let_in(connection)
