"""The event loop: readiness of descriptors, timers, and calls from other threads.

One thread runs everything. If a callback raises, the error is logged and the loop continues. Objects that must not
survive their own failure (a connection, a log directory) handle their errors themselves.
"""

from __future__ import annotations

import heapq
import logging
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from kraft_node.base.lag import SLOW_S, LoopLag

log = logging.getLogger("kraft_node.runtime.loop")

READABLE: Final = select.POLLIN
WRITABLE: Final = select.POLLOUT

EVENTS_MAX: Final = 1024
"""Maximum of descriptors handled before timers run: a turn stays within a few milliseconds."""

WAIT_MAX_S: Final = 60.0
"""Maximum wait, so that a faulty clock costs a minute at most."""

CANCELLED_MAX: Final = 512
"""Cancelled timers in the heap that trigger a rebuild."""


class TimerHandle:
    """A scheduled call (`base.env.Timer`)."""

    __slots__ = ("args", "function", "loop")

    def __init__(self, loop: Loop | None, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.loop = loop
        self.function: Callable[..., None] | None = function
        self.args = args

    def cancel(self) -> None:
        """Cancel the call and release its arguments at once; harmless if it has run already."""
        if self.function is not None:
            self.function = None
            self.args = ()
            if self.loop is not None:
                self.loop.timer_cancelled()


class Loop:
    """The event loop of a process. Runs until `stop`."""

    def __init__(self) -> None:
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._poll = None if self._epoll else select.poll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._ready: deque[TimerHandle] = deque()
        self._heap: list[tuple[float, int, TimerHandle]] = []
        self._sequence = 0
        self._cancelled = 0
        self._foreign: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._running = False
        self.lag = LoopLag()
        self._wake_out, self._wake_in = socket.socketpair()
        self._wake_out.setblocking(False)
        self._wake_in.setblocking(False)
        self.watch(self._wake_out.fileno(), READABLE, self._woken)

    # Descriptors

    def watch(self, fd: int, mask: int, callback: Callable[[int], None]) -> None:
        """Call `callback(events)` whenever `fd` is ready for the events in `mask`, or has failed."""
        self._callbacks[fd] = callback
        (self._epoll or self._poll).register(fd, mask)  # type: ignore[union-attr]

    def rewatch(self, fd: int, mask: int) -> None:
        """Change the events of a watched descriptor; 0: failures only."""
        (self._epoll or self._poll).modify(fd, mask)  # type: ignore[union-attr]

    def unwatch(self, fd: int) -> None:
        """Stop watching; call it before the descriptor is closed."""
        if self._callbacks.pop(fd, None) is not None:
            (self._epoll or self._poll).unregister(fd)  # type: ignore[union-attr]

    # Calls

    def call_soon(self, function: Callable[..., None], *args: Any) -> TimerHandle:
        """Run `function` after the current callback, in the order of the calls. Only for the loop's thread."""
        handle = TimerHandle(None, function, args)
        self._ready.append(handle)
        return handle

    def call_later(self, delay_ms: float, function: Callable[..., None], *args: Any) -> TimerHandle:
        """Run `function` in the first turn after `delay_ms` milliseconds. Only for the loop's thread."""
        handle = TimerHandle(self, function, args)
        self._sequence += 1
        heapq.heappush(self._heap, (time.monotonic() + delay_ms / 1000.0, self._sequence, handle))
        return handle

    def call_from_thread(self, function: Callable[..., None], *args: Any) -> None:
        """Run `function` on the loop. This is the only method that other threads and signal handlers may call."""
        self._foreign.append((function, args))
        try:
            self._wake_in.send(b"\0")
        except BlockingIOError:
            pass  # it is full, so the loop will wake
        except OSError:
            log.debug("loop already closed")

    @property
    def wake_fd(self) -> int:
        """The descriptor for `signal.set_wakeup_fd`."""
        return self._wake_in.fileno()

    def timer_cancelled(self) -> None:
        """Called by handles. Rebuilds the heap if most timers in it are cancelled."""
        self._cancelled += 1
        if self._cancelled > CANCELLED_MAX and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].function is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    # Running

    def run(self) -> None:
        """Handle events until `stop` is called."""
        self._running = True
        poll: Callable[[float], list[tuple[int, int]]]
        if self._epoll is not None:
            epoll_poll = self._epoll.poll
            poll = lambda wait_s: epoll_poll(wait_s, EVENTS_MAX)  # noqa: E731
        else:
            assert self._poll is not None
            plain_poll = self._poll.poll
            poll = lambda wait_s: plain_poll(wait_s * 1000.0)  # noqa: E731
        callbacks = self._callbacks
        monotonic, lag = time.monotonic, self.lag
        while self._running:
            ready = poll(self._wait_s())
            begun = at = monotonic()
            for fd, events in ready:
                callback = callbacks.get(fd)
                if callback is not None:
                    try:
                        callback(events)
                    except Exception:
                        log.exception("failure while handling a descriptor fd=%d", fd)
                    before, at = at, monotonic()
                    if at - before > SLOW_S:
                        lag.slow(at - before, "descriptor", callback)
            if self._heap:
                self._fire_timers()
            if self._ready:
                at = self._run_ready(at)
            lag.turn(at - begun)

    def stop(self) -> None:
        """Return from `run` after the current turn."""
        self._running = False

    def close(self) -> None:
        """Close the descriptors, after `run` has returned."""
        self.unwatch(self._wake_out.fileno())
        self._wake_out.close()
        self._wake_in.close()
        if self._epoll is not None:
            self._epoll.close()

    def _wait_s(self) -> float:
        if self._ready:
            return 0.0
        heap = self._heap
        while heap and heap[0][2].function is None:
            heapq.heappop(heap)
            self._cancelled = max(0, self._cancelled - 1)
        if not heap:
            return WAIT_MAX_S
        return min(max(0.0, heap[0][0] - time.monotonic()), WAIT_MAX_S)

    def _fire_timers(self) -> None:
        now = time.monotonic()
        heap = self._heap
        while heap and heap[0][0] <= now:
            self._ready.append(heapq.heappop(heap)[2])
            heap = self._heap

    def _run_ready(self, at: float) -> float:
        """Run due calls. `at` is the time before; returns the time after."""
        ready, monotonic = self._ready, time.monotonic
        for _ in range(len(ready)):  # calls added meanwhile wait for the next turn, so that descriptors are not starved
            handle = ready.popleft()
            function = handle.function
            if function is None:
                continue
            handle.function = None
            try:
                function(*handle.args)
            except Exception:
                log.exception("failure in a call on the loop")
            before, at = at, monotonic()
            if at - before > SLOW_S:
                self.lag.slow(at - before, "call" if handle.loop is None else "timer", function, handle.args)
        return at

    def _woken(self, _events: int) -> None:
        try:
            while len(self._wake_out.recv(4096)) == 4096:
                pass
        except BlockingIOError:
            pass
        foreign = self._foreign
        while foreign:
            function, args = foreign.popleft()
            self.call_soon(function, *args)
