"""One request on its way through the node, and what a handler is.

The server makes a `RequestContext` for each request; controller and broker answer through it without knowing of
connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias


class RequestContext:
    """Who asks what. A handler that does not answer at once keeps this and calls `respond` later, exactly once."""

    __slots__ = (
        "_reply",
        "api_key",
        "api_version",
        "client_host",
        "client_id",
        "connection",
        "correlation_id",
        "listener",
        "principal",
        "received_ms",
    )

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

    def respond(self, response: Any) -> None:
        """Answer with a response message, or with None where the protocol wants no answer (acks=0).

        Raises AssertionError when it was answered before.
        """
        reply = self._reply
        assert reply is not None, f"request {self.correlation_id} of api {self.api_key} was answered twice"
        self._reply = None
        reply(self, response)


Handler: TypeAlias = Callable[[RequestContext, Any], Any]
"""Takes context and request; returns the response, or None when `context.respond` will be called later.

A KafkaError that it raises is answered as the whole request's error. The request's `records` are views of the
connection's buffer: valid until the handler returns.
"""
