"""A broker that no controller has acknowledged for too long fences itself (KIP-343, "Broker-Side Heartbeat Timeout").

Cut off from the controllers it cannot know whether its partitions are led elsewhere by now. After
`broker.heartbeat.timeout.ms` without an acknowledged heartbeat it takes no new produce and no new fetch of clients:
they get NOT_LEADER_OR_FOLLOWER, upon which clients look for the leader again. What it had accepted it finishes; so
followers go on fetching, or records accepted with acks=all could never be acknowledged. The next acknowledged
heartbeat opens it again.

The timeout is longer than the controller's own (`broker.session.timeout.ms`): nobody refuses before the controller has
chosen other leaders. Called by `lifecycle` (heartbeats) and the produce and fetch handlers; decides nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraft_node.base.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.base.env import Clock, Scheduler, Timer

log = logging.getLogger(__name__)

KEY: Final = "broker.heartbeat.timeout.ms"
SESSIONS: Final = 2
"""The default is so many times `broker.session.timeout.ms`."""


def timeout_of(text: str, session_timeout_ms: int) -> int:
    """The timeout that the configuration means: empty for the default, 0 for never. Raises ValueError."""
    if not text.strip():
        return SESSIONS * session_timeout_ms
    timeout_ms = int(text)
    if timeout_ms and timeout_ms <= session_timeout_ms:
        raise ValueError(f"{KEY}={timeout_ms} must be 0 or longer than broker.session.timeout.ms={session_timeout_ms}")
    return timeout_ms


class SelfFence:
    """`fenced` says whether clients are refused. `timeout_ms` 0: never."""

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
            log.warning("A controller answers again: clients are served")
            self.on_change()
        if self._timer is None and self._timeout_ms:
            self._timer = self._scheduler.call_later(self._timeout_ms, self._look)

    def _look(self) -> None:
        """One timer that moves on, not one a heartbeat."""
        left_ms = self._last_ms + self._timeout_ms - self._clock.monotonic_ms()
        if left_ms > 0:
            self._timer = self._scheduler.call_later(left_ms, self._look)
            return
        self._timer = None
        self.fenced = True
        self.times += 1
        log.warning("No controller has acknowledged a heartbeat for %d ms: clients are refused", self._timeout_ms)
        self.on_change()

    def check(self) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER while the broker has fenced itself."""
        if self.fenced:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker has not heard from a controller and serves nobody"
            )

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
