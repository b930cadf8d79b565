"""The timers of a shard: all end with it, so that no call reaches a state that was dropped."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraft_node.base.env import Scheduler, Timer


class ShardTimer:
    """A scheduled call of a shard."""

    __slots__ = ("_args", "_function", "_timer", "_timers")

    def __init__(self, timers: ShardTimers, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._timers: ShardTimers | None = timers
        self._function = function
        self._args = args
        self._timer: Timer | None = None

    def start(self, timer: Timer) -> None:
        """`timer` will call `fire`."""
        self._timer = timer

    def fire(self) -> None:
        """Make the call, unless it was cancelled."""
        timers, self._timers = self._timers, None
        self._timer = None  # it refers to this object: without the cycle, the collector need not free both
        if timers is not None:
            timers.live.discard(self)
            self._function(*self._args)

    def cancel(self) -> None:
        """Cancel the call; harmless if it was made or cancelled before."""
        timers, self._timers = self._timers, None
        timer, self._timer = self._timer, None
        if timers is not None:
            timers.live.discard(self)
            if timer is not None:
                timer.cancel()

    def callback_name(self) -> str:
        """For the log line of a slow callback."""
        return f"timer={getattr(self._function, '__qualname__', '')}"


class ShardTimers:
    """A `Scheduler` with calls that end with the shard; also timers by key."""

    __slots__ = ("_keyed", "_scheduler", "live")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.live: set[ShardTimer] = set()
        self._keyed: dict[Hashable, ShardTimer] = {}

    def call_soon(self, function: Callable[..., None], *args: Any) -> ShardTimer:
        """Call `function` after the current callback of the loop, unless the shard ends first."""
        timer = ShardTimer(self, function, args)
        self.live.add(timer)
        timer.start(self._scheduler.call_soon(timer.fire))
        return timer

    def call_later(self, delay_ms: float, function: Callable[..., None], *args: Any) -> ShardTimer:
        """Call `function` no sooner than `delay_ms` milliseconds from now, unless the shard ends first."""
        timer = ShardTimer(self, function, args)
        self.live.add(timer)
        timer.start(self._scheduler.call_later(delay_ms, timer.fire))
        return timer

    def schedule(self, key: Hashable, delay_ms: float, function: Callable[..., None], *args: Any) -> None:
        """Call `function` after `delay_ms`; replaces the timer of the same key."""
        self.cancel(key)
        self._keyed[key] = self.call_later(delay_ms, self._fire, key, function, args)

    def _fire(self, key: Hashable, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        del self._keyed[key]
        function(*args)

    def cancel(self, key: Hashable) -> None:
        """Cancel the timer of the key; without a timer, nothing happens."""
        timer = self._keyed.pop(key, None)
        if timer is not None:
            timer.cancel()

    def cancel_all(self) -> None:
        """The shard ends."""
        for timer in list(self.live):
            timer.cancel()
        self._keyed.clear()
