"""What the connections of one listener share: APIs, receive memory, quotas, turns, and the count of refusals."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from kraft_node.base.turns import OneByOne, Turns
from kraft_node.server.connections.large_requests import LargeRequests
from kraft_node.server.connections.security import EARLY_APIS, ListenerSecurity
from kraft_protocol.wire.api import API, ApiKey, ApiSpec
from kraft_protocol.wire.sizes import is_long

if TYPE_CHECKING:
    from kraft_node.base.env import Env
    from kraft_node.base.net import Transport
    from kraft_node.base.request import Handler, RequestContext
    from kraft_node.server.connections.buffers import BufferPool
    from kraft_node.server.connections.unread import Unread
    from kraft_node.server.monitoring.metrics import ApiMetrics, RequestMetrics
    from kraft_protocol.wire.classes import Message

log = logging.getLogger("kraft_node.server.connections.listener")

REFUSALS_LOGGED_PER_MINUTE: Final = 60
"""Further refusals are counted but not logged: a hostile client must not fill the disk."""


class ServedApi:
    """One API as this listener serves it. The request's class is made with its first request."""

    __slots__ = ("_is_long", "_request", "_spec", "handler", "max_version", "metrics", "min_version", "name")

    def __init__(self, spec: ApiSpec, handler: Handler, metrics: ApiMetrics) -> None:
        self._spec = spec
        self._request: type[Message] | None = None
        self._is_long: Callable[[Any], bool] | None = None
        self.name = spec.name
        self.handler = handler
        self.min_version = spec.min_version
        self.max_version = spec.max_version
        self.metrics = metrics

    @property
    def request(self) -> type[Message]:
        """The class of the requests, made at the first use."""
        if self._request is None:
            self._request = self._spec.request
        return self._request

    def speaks(self, version: int) -> bool:
        """Whether the version is served."""
        return self.min_version <= version <= self.max_version

    def is_long(self, response: Any) -> bool:
        """Whether the answer must be encoded in steps."""
        if self._is_long is None:
            self._is_long = is_long(self._spec.response)
        return self._is_long(response)


class QuotaPolicy(Protocol):
    """The quotas of clients: `broker.client_quotas` implements it."""

    is_active: bool

    def charge(self, ctx: RequestContext, response: Any) -> int:
        """Count an outgoing answer. Returns for how many milliseconds the client must not be read."""


class _NoQuotas:
    is_active = False

    def charge(self, ctx: RequestContext, response: Any) -> int:  # noqa: ARG002
        return 0


NO_QUOTAS: Final = _NoQuotas()
"""For listeners that only nodes use."""


class TouchedConnection(Protocol):
    """A connection with answers to send."""

    peer_host: str
    transport: Transport

    def catch_up(self) -> None:
        """Send responses that were given meanwhile, and continue."""


class ListenerContext(ABC):
    """The listener, for its connections."""

    def __init__(
        self,
        env: Env,
        name: str,
        handlers: Mapping[ApiKey, Handler],
        *,
        pool: BufferPool,
        metrics: RequestMetrics,
        unread: Unread,
        request_bytes_max: int,
        versions_fallback: Callable[[], Any] | None,
        quotas: QuotaPolicy,
        security: ListenerSecurity,
    ) -> None:
        self.env = env
        self.clock = env.clock
        self.name = name
        self.pool = pool
        self.unread = unread
        self.request_bytes_max = request_bytes_max
        self.versions_fallback = versions_fallback
        self.quotas = quotas
        self.apis = {
            int(key): ServedApi(API[key], handler, metrics.api(key, API[key].name)) for key, handler in handlers.items()
        }
        self.security = security
        self.early_apis = {int(key): self.apis[int(key)] for key in EARLY_APIS if int(key) in self.apis}
        """The APIs of connections without a principal."""
        produce = self.apis.get(int(ApiKey.PRODUCE))
        self.produce_metrics = None if produce is None else produce.metrics
        self.turns = Turns(env)
        """Continues the work of connections that have used up their share of a loop turn."""
        self.large = LargeRequests(self.turns)
        self.encoding = OneByOne(self.turns)
        """Encodes long answers, one at a time."""
        self.refusals = 0
        self._refusals_before = 0
        self._touched: list[TouchedConnection] = []

    @property
    def uses_sasl(self) -> bool:
        """Whether SASL authenticates the clients."""
        return self.security.authentication is not None

    @abstractmethod
    def forget(self, connection: Any) -> None:
        """The connection (a `Connection`) is closed."""

    def touch(self, connection: TouchedConnection) -> None:
        """Let `connection` send its answers after the current work."""
        if not self._touched:
            self.env.scheduler.call_soon(self._catch_up)
        self._touched.append(connection)

    def _catch_up(self) -> None:
        touched, self._touched = self._touched, []
        for connection in touched:
            try:
                connection.catch_up()
            except Exception:
                log.exception("connection closed after a failure peer=%s listener=%s", connection.peer_host, self.name)
                connection.transport.abort()

    def refused(self, host: str, reason: str) -> None:
        """Count and log a refused connection or request."""
        self.refusals += 1
        if self.refusals - self._refusals_before <= REFUSALS_LOGGED_PER_MINUTE:
            log.warning("refused peer=%s listener=%s reason=%s", host, self.name, reason)
