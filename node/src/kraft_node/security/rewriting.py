"""How a guard removes denied items from a request, and adds them to the answer, now or later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft_node.base.request import Handler, RequestContext


def changed(message: Any, **fields: Any) -> Any:
    """A copy of the message with changed fields."""
    cls: Any = type(message)  # the class of a decoded message has no constructor
    made = cls.__new__(cls)
    for name in message._fields:
        setattr(made, name, fields[name] if name in fields else getattr(message, name))
    return made


def answered(
    handler: Handler,
    ctx: RequestContext,
    request: Any,
    complete: Callable[[Any], Any],
    *,
    api_version: int | None = None,
) -> Any:
    """Let `handler` answer `request`; the client gets the answer after `complete` has changed it.

    `api_version`: handle it as a request of this version, which must have the same answer.
    """

    def reply(_: RequestContext, response: Any) -> None:
        ctx.respond(None if response is None else complete(response))

    inner = RequestContext(
        ctx.api_key,
        ctx.api_version if api_version is None else api_version,
        ctx.correlation_id,
        ctx.client_id,
        ctx.client_host,
        ctx.listener,
        ctx.principal,
        ctx.connection,
        ctx.received_ms,
        reply,
    )
    response = handler(inner, request)
    if response is None:
        return None
    inner.finish()
    return complete(response)
