"""A request on its way through the node: what the connection knows about it, and how it is answered.

`server.connection` makes one `RequestContext` a request and calls the `Handler` of its api key; broker, controller and
coordinators see nothing else of the connection.

What a handler may rely on and must do:

1. Requests of one connection are handled in the order in which they arrived, and answered in it.
2. It returns the response message to answer at once, or returns None and calls `ctx.respond(message)` later, exactly
   once, on the event loop. `ctx.respond(None)` ends a request that has no response (Produce with acks=0).
3. A `KafkaError` that it raises becomes the error response that the api's schema has room for.
4. Memoryviews inside the request (records) point into the connection's receive buffer. They are valid until the
   handler returns, and not a moment longer: who defers copies what it keeps (`bytes(view)`).
5. While a request other than Produce is unanswered, the connection handles no further one, as in Kafka; a waiting
   Produce lets only further Produces pass. So a handler need not expect two of its own requests of one connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a connection that has not authenticated (KafkaPrincipal.ANONYMOUS)."""


class RequestContext:
    """One request. `received_ms` is of the monotonic clock; `listener` is the listener's name."""

    __slots__ = (
        "_reply",
        "api_key",
        "api_version",
        "client_host",
        "client_id",
        "connection",
        "correlation_id",
        "handled_ms",
        "listener",
        "output",
        "principal",
        "received_bytes",
        "received_ms",
        "spent_ms",
    )

    received_bytes: int
    spent_ms: int

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        client_host: str,
        listener: str,
        principal: str,
        connection: Any,
        received_ms: int,
        reply: Callable[[RequestContext, Any], None],
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.client_host = client_host
        self.listener = listener
        self.principal = principal
        self.connection = connection
        self.received_ms = received_ms
        self._reply: Callable[[RequestContext, Any], None] | None = reply
        self.output: Any = None
        """For the connection's use: the encoded response that waits for its turn."""
        self.handled_ms = -1
        """When its handling began, of a request that counts for quotas; others have no `received_bytes` and `spent_ms`,
        the request's size and the time that the handler took (-1 until it returns)."""

    def respond(self, response: Any) -> None:
        """Answer with a response message, or with None where the protocol wants no answer (acks=0).

        Raises AssertionError when it was answered before: that is a defect of the handler.
        """
        reply = self._reply
        assert reply is not None, f"{self!r} was answered twice"
        self._reply = None
        reply(self, response)

    def finish(self) -> None:
        """For the connection: the handler has returned the answer."""
        self._reply = None

    def close_connection(self) -> None:
        """End the request, and the connection with it, as Kafka does when a Produce with acks=0 fails."""
        assert self._reply is not None, f"{self!r} was answered before"
        self._reply = None
        self.connection.close()

    @property
    def answered(self) -> bool:
        return self._reply is None

    @property
    def abandoned(self) -> bool:
        """Whether the client has gone, so that answering (still allowed) is of no use."""
        return bool(getattr(self.connection, "closed", False))

    def __repr__(self) -> str:
        return (
            f"RequestContext(api_key={self.api_key}, version={self.api_version}, correlation_id={self.correlation_id}, "
            f"client_id={self.client_id!r}, client={self.client_host}, listener={self.listener})"
        )


Handler: TypeAlias = Callable[[RequestContext, Any], Any]
"""Takes the context and the decoded request; returns the response message, or None to answer later."""
