"""A request in the node: its properties, and how to answer it.

`server.connections.connection` makes one `RequestContext` per request and calls the `Handler` of its api key. Broker,
controller and coordinators see no other part of the connection.

The contract of a handler:

1. Requests of one connection are handled in the order in which they arrived, and answered in it.
2. It returns the response message to answer at once, or returns None and calls `ctx.respond(message)` later, exactly
   once, on the event loop. `ctx.respond(None)` ends a request that has no response (Produce with acks=0).
3. If it raises `KafkaError`, the response is the api's error response.
4. Memoryviews inside the request (records) point into the connection's receive buffer. They are valid only until the
   handler returns. A handler that answers later must copy the bytes that it keeps (`bytes(view)`).
5. While a request other than Produce is unanswered, the connection handles no other request, as in Kafka. A waiting
   Produce lets only further Produces pass. So a handler (except Produce) never has two requests of one connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of an unauthenticated connection (KafkaPrincipal.ANONYMOUS)."""


class TokenPrincipal(str):
    """The principal of a client that logged in with a delegation token: the owner of the token (KIP-48).

    It equals the owner's principal for permissions and quotas. A client of this kind must not create tokens.
    """

    __slots__ = ()


class RequestContext:
    """One request. `received_ms` is monotonic time; `listener` is the listener's name."""

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
        """For the connection: the encoded response that waits for its turn."""
        self.handled_ms = -1
        """When handling began, for a request that counts for quotas. Other requests lack `received_bytes` (the
        request's size) and `spent_ms` (the handler's time; -1 until it returns)."""

    def respond(self, response: Any) -> None:
        """Answer with a response message, or with None if the protocol has no answer (acks=0).

        Raises AssertionError if it was answered before: this is a defect of the handler.
        """
        reply = self._reply
        assert reply is not None, f"{self!r} was answered twice"
        self._reply = None
        reply(self, response)

    def finish(self) -> None:
        """For the connection: the handler has returned the answer."""
        self._reply = None

    def close_connection(self) -> None:
        """End the request and close the connection, as Kafka does when a Produce with acks=0 fails."""
        assert self._reply is not None, f"{self!r} was answered before"
        self._reply = None
        self.connection.close()

    @property
    def answered(self) -> bool:
        """Whether the request has ended: the handler has answered it or closed the connection."""
        return self._reply is None

    @property
    def abandoned(self) -> bool:
        """Whether the client has disconnected, so that an answer (still allowed) is useless."""
        return bool(getattr(self.connection, "closed", False))

    def __repr__(self) -> str:
        return (
            f"RequestContext(api_key={self.api_key}, version={self.api_version}, correlation_id={self.correlation_id}, "
            f"client_id={self.client_id!r}, client={self.client_host}, listener={self.listener})"
        )


Handler: TypeAlias = Callable[[RequestContext, Any], Any]
"""Takes the context and the decoded request; returns the response message, or None to answer later."""
