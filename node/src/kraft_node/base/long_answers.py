"""Large answers: built in turns of the loop if a request needs more work than one turn allows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final

from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.error_response import error_response, error_response_in_steps

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.base.turns import Turns

log = logging.getLogger("kraft_node.base.long_answers")

INLINE_STEPS: Final = 4
"""Steps of at most about a millisecond that a request may use at once."""


def answer(turns: Turns, ctx: RequestContext, request: Any, parts: Generator[None, None, Any]) -> Any:
    """The response that `parts` returns; None if it needs more steps and is sent later.

    `parts` must read the metadata again after each step, because it may have changed.
    """
    for _ in range(INLINE_STEPS):
        try:
            next(parts)
        except StopIteration as end:
            return end.value
    answer_later(turns, ctx, request, parts)
    return None


def answer_later(turns: Turns, ctx: RequestContext, request: Any, parts: Generator[None, None, Any]) -> None:
    """Run `parts` in turns and send the response that it returns. If it returns None, it has answered itself.

    `parts` is closed if the client has disconnected, or if the request has been answered meanwhile.
    """

    def step() -> bool:
        if ctx.abandoned or ctx.answered:
            parts.close()
            return False
        goes_on = False

        def go_on() -> Any:
            nonlocal goes_on
            try:
                next(parts)
            except StopIteration as end:
                return end.value
            goes_on = True
            return None

        answer_with(ctx, request, go_on, turns)
        return goes_on

    turns.add(step)


def answer_with(ctx: RequestContext, request: Any, function: Callable[[], Any], turns: Turns | None = None) -> None:
    """Send the response that `function` returns, or the error that it raises. None: the answer is sent elsewhere.

    With `turns`, the response of an error is built there: it may have an item for each item of the request.
    """
    try:
        response = function()
    except KafkaError as error:
        failure = (error.code, error.message)
    except Exception:
        log.exception("request failed request=%r", ctx)
        failure = (ErrorCode.UNKNOWN_SERVER_ERROR, None)
    else:
        if response is not None and not ctx.answered:
            ctx.respond(response)
        return
    if turns is not None:
        refuse_later(turns, ctx, request, *failure)
    elif not ctx.answered:
        ctx.respond(error_response(request, ctx.api_version, *failure))


def refuse_later(turns: Turns, ctx: RequestContext, request: Any, code: ErrorCode, message: str | None) -> None:
    """Build the error response to a large request in turns, and send it. If this fails, it is not tried again."""
    parts = error_response_in_steps(request, ctx.api_version, code, message)

    def step() -> bool:
        if ctx.abandoned or ctx.answered:
            return False
        try:
            next(parts)
        except StopIteration as end:
            ctx.respond(end.value)
            return False
        return True

    turns.add(step)
