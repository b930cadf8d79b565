"""Producer ids in blocks of 1000 from the controller (KIP-730), assigned one by one.

The next block is requested before the current block is used up, so that starting producers do not wait.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.calls import call_each
from kraft_node.broker.controller_link import problem_of
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import AllocateProducerIdsRequest

if TYPE_CHECKING:
    from kraft_node.base.env import Scheduler
    from kraft_node.broker.controller_link import Answer, ControllerLink

log = logging.getLogger(__name__)

PREFETCH_SHARE: Final = 0.9
"""The used part of a block at which the next block is requested, as in Kafka."""
RETRY_MS: Final = 50
TIMEOUT_MS: Final = 60_000
WAITING_MAX: Final = 10_000
"""Maximum of producers that wait for a block; further producers must retry."""

Taker = Callable[[int | KafkaError], None]


class ProducerIds:
    """Assigns ids that no other producer of the cluster has ever had."""

    def __init__(
        self, node_id: int, broker_epoch: Callable[[], int], controller: ControllerLink, scheduler: Scheduler
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._scheduler = scheduler
        self._next = self._end = self._prefetch_at = 0
        self._next_block: tuple[int, int] | None = None
        self._asking = False
        self._waiting: deque[Taker] = deque()

    def take(self, taker: Taker) -> None:
        """Call `taker` with an id, now or when the controller has answered; or with a retriable error."""
        if self._next == self._end and self._next_block is not None:
            self._enter_block()
        if self._next < self._end:
            producer_id = self._next
            self._next += 1
            if self._next >= self._prefetch_at and self._next_block is None:
                self._request_block()
            taker(producer_id)
            return
        if len(self._waiting) >= WAITING_MAX:
            taker(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "too many producers wait for an id"))
            return
        self._waiting.append(taker)
        self._request_block()

    def _enter_block(self) -> None:
        assert self._next_block is not None
        start, length = self._next_block
        self._next_block = None
        self._next, self._end = start, start + length
        self._prefetch_at = start + int(length * PREFETCH_SHARE)

    def _request_block(self) -> None:
        if self._asking:
            return
        self._asking = True
        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        self._controller.send(request, None, self._answered, TIMEOUT_MS)

    def _answered(self, answer: Answer) -> None:
        problem = _problem(answer)
        if problem is not None:
            log.warning("controller assigned no producer ids error=%s", problem)
            # Only now may another request begin: the flag stays set during the pause.
            self._scheduler.call_later(RETRY_MS, self._retry)
            waiting, self._waiting = self._waiting, deque()
            text = f"no producer id is available: {problem}"
            call_each(waiting, KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text))
            return
        self._asking = False
        assert not isinstance(answer, OSError | KafkaError)
        self._next_block = (answer.producer_id_start, answer.producer_id_len)
        waiting, self._waiting = self._waiting, deque()
        call_each(partial(self.take, taker) for taker in waiting)

    def _retry(self) -> None:
        self._asking = False
        if self._waiting:
            self._request_block()


def _problem(answer: Any) -> str | None:
    problem = problem_of(answer)
    return "an empty block" if problem is None and answer.producer_id_len <= 0 else problem
