"""Produce requests with batches that have too many records to be read at once (`log.validate.LongCheck`).

The records are copied and read in turns of the loop. The broker checks one batch at a time, so only one is
decompressed. The connection handles no further request until this batch is appended, so sequences stay in order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kraft_node.base.turns import OneByOne
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.base.turns import Turns

log = logging.getLogger("kraft_node.broker.handlers.long_checks")

WAITING_MAX: Final = 1000
"""Batches that may wait; beyond it, producers get a retriable error."""

Steps: TypeAlias = "Generator[int, None, Any]"
Done: TypeAlias = "Callable[[Any], None]"


class LongChecks:
    """The checks of one broker."""

    __slots__ = ("_line",)

    def __init__(self, turns: Turns) -> None:
        self._line = OneByOne(turns)

    def add(self, steps: Steps, done: Done) -> None:
        """Run `steps` after the earlier checks, then call `done` with the result or a KafkaError."""
        if len(self._line) >= WAITING_MAX:
            done(KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{WAITING_MAX} batches wait for their check"))
            return

        def ended(outcome: Any) -> None:
            if isinstance(outcome, Exception) and not isinstance(outcome, KafkaError):
                log.error("check of a batch failed", exc_info=outcome)
                outcome = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            done(outcome)

        self._line.add(steps, ended)
