"""Answers of many parts: put together in turns of the loop if a request asks for more than may be done at once."""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.wire.error_response import error_response

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.base.turns import Turns
    from kraft_node.broker.broker import Broker

log = logging.getLogger("kraft_node.broker.long_answers")

INLINE_STEPS: Final = 4
"""Steps, of about a millisecond at most, that a request has at once."""


def answer(broker: Broker, ctx: RequestContext, request: Any, parts: Generator[None, None, Any]) -> Any:
    """The response that `parts` returns; None if it has more steps and answers later.

    `parts` reads the metadata anew after each step: it may have changed.
    """
    for _ in range(INLINE_STEPS):
        try:
            next(parts)
        except StopIteration as end:
            return end.value
    _later(broker.turns, ctx, request, parts)
    return None


def _later(turns: Turns, ctx: RequestContext, request: Any, parts: Generator[None, None, Any]) -> None:
    def step() -> bool:
        if ctx.abandoned:
            return False
        try:
            next(parts)
        except StopIteration as end:
            ctx.respond(end.value)
        except KafkaError as error:
            ctx.respond(error_response(request, ctx.api_version, error.code, error.message))
        except Exception:
            log.exception("request failed request=%r", ctx)
            ctx.respond(error_response(request, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR, None))
        else:
            return True
        return False

    turns.add(step)
