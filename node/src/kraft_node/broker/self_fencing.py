"""A broker that no controller has acknowledged for too long fences itself (KIP-343, "Broker-Side Heartbeat Timeout").

Without contact to the controllers it cannot know whether other brokers lead its partitions by now. After
`broker.heartbeat.timeout.ms` without an acknowledged heartbeat it refuses new produces and fetches of clients with
NOT_LEADER_OR_FOLLOWER, so that clients look for the leader again. It finishes accepted requests. Followers continue to
fetch; otherwise records accepted with acks=all could never be acknowledged. The next acknowledged heartbeat ends this.

The time-out is longer than the controller's (`broker.session.timeout.ms`): the broker refuses no requests before the
controller has chosen other leaders. `lifecycle` (heartbeats) and the produce and fetch handlers use it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.base.env import Clock, Scheduler, Timer

log = logging.getLogger(__name__)

KEY: Final = "broker.heartbeat.timeout.ms"
SESSIONS: Final = 2
"""The default time-out as a multiple of `broker.session.timeout.ms`."""


def timeout_of(text: str, session_timeout_ms: int) -> int:
    """The configured time-out in milliseconds: empty for the default, 0 for never. Raises ValueError."""
    if not text.strip():
        return SESSIONS * session_timeout_ms
    timeout_ms = int(text)
    if timeout_ms and timeout_ms <= session_timeout_ms:
        raise ValueError(f"{KEY}={timeout_ms} must be 0 or longer than broker.session.timeout.ms={session_timeout_ms}")
    return timeout_ms


class SelfFence:
    """`fenced`: whether clients are refused. `timeout_ms` 0: never."""

    __slots__ = ("_clock", "_last_ms", "_scheduler", "_timeout_ms", "_timer", "fenced", "on_change", "times")

    def __init__(self, clock: Clock, scheduler: Scheduler, timeout_ms: int) -> None:
        self.fenced = False
        self.times = 0
        """How often the broker has fenced itself."""
        self.on_change: Callable[[], None] = lambda: None
        self._clock = clock
        self._scheduler = scheduler
        self._timeout_ms = timeout_ms
        self._last_ms = 0
        self._timer: Timer | None = None

    def acknowledged(self) -> None:
        """A controller has acknowledged a heartbeat."""
        self._last_ms = self._clock.monotonic_ms()
        if self.fenced:
            self.fenced = False
            log.warning("a controller acknowledges heartbeats again, clients are served")
            self.on_change()
        if self._timer is None and self._timeout_ms:
            self._timer = self._scheduler.call_later(self._timeout_ms, self._look)

    def _look(self) -> None:
        """One timer that moves, not one per heartbeat."""
        left_ms = self._last_ms + self._timeout_ms - self._clock.monotonic_ms()
        if left_ms > 0:
            self._timer = self._scheduler.call_later(left_ms, self._look)
            return
        self._timer = None
        self.fenced = True
        self.times += 1
        log.warning("no controller acknowledges heartbeats, clients are refused ms=%d", self._timeout_ms)
        self.on_change()

    def check(self) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER while the broker has fenced itself."""
        if self.fenced:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "no controller answers this broker, so it refuses clients"
            )

    def close(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
