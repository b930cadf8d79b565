"""A queue of passes: which clusters or pipelines are due, and when. Each is queued at most once, so it is bounded.

An event enqueues a key at once, and a pass enqueues it again for later; the earlier time wins. A key is never in two
passes at a time. If an event arrives during a pass, another pass follows. A pass begins at least PACE_S after the
previous pass. So events that arrive together, such as events of a pass's own writes, cause a single pass. Failed
passes are retried with growing delays.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from kraft_operator.reconcile import Key

log = logging.getLogger("kraft_operator.pass_queue")

WORKERS: Final = 4
"""Concurrent passes. They mostly wait for answers, and a slow cluster must not delay the others."""
PACE_S: Final = 0.1
"""The least seconds between the end of a pass and the start of the next pass of the same key."""
FAILED_S: Final = 0.5
"""Seconds before the first retry of a failed pass, doubled up to FAILED_S_MAX."""
FAILED_S_MAX: Final = 30.0
CLUSTERS_MAX: Final = 10_000

Work = Callable[[Key], Awaitable[float | None]]


class Queue:
    """The queue and its workers."""

    def __init__(
        self, work: Work, clock: Callable[[], float], on_length: Callable[[int], None] = lambda _: None
    ) -> None:
        """`work` runs a pass and returns the seconds until the next pass, or None. `on_length` gets the length."""
        self._work = work
        self._clock = clock
        self._on_length = on_length
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []
        self._busy: dict[Key, float] = {}
        """When each current pass began."""
        self._ended: dict[Key, float] = {}
        """When the last pass of each key ended, without keys that are gone."""
        self._closed = False
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def put(self, key: Key, after_s: float = 0.0) -> None:
        """Enqueue a pass that is due in `after_s` seconds; an earlier due time stays."""
        due = max(self._clock() + after_s, self._ended.get(key, float("-inf")) + PACE_S)
        if key not in self._due and len(self._due) >= CLUSTERS_MAX:
            log.error("too many clusters, one is not reconciled limit=%d cluster=%s/%s", CLUSTERS_MAX, *key)
            return
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, key))
        self._changed.set()

    def close(self) -> None:
        """Begin no more passes: `run` ends once the current passes have ended."""
        self._closed = True
        self._changed.set()

    def longest_s(self) -> float:
        """The age of the oldest current pass in seconds; 0 if no pass runs."""
        now = self._clock()
        return now - min(self._busy.values(), default=now)

    async def run(self, workers: int = WORKERS) -> None:
        """Run passes until cancelled or closed."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while not self._closed:
            key = self._next()
            if key is None:
                await self._wait()
                continue
            self._busy[key] = self._clock()
            try:
                after_s = await self._work(key)
                self._failures.pop(key, None)
            except Exception as error:  # noqa: BLE001, RUF100  (any error concerns one cluster only)
                count = self._failures[key] = self._failures.get(key, 0) + 1
                after_s = min(FAILED_S * 2 ** min(count - 1, 10), FAILED_S_MAX)
                text = "pass failed, and is repeated cluster=%s/%s after_s=%g error=%s"
                log.warning(text, *key, after_s, error, exc_info=_unknown(error))
            finally:
                self._end(key)
            if after_s is not None:
                self.put(key, after_s)
            elif key not in self._due:
                self._ended.pop(key, None)

    def _end(self, key: Key) -> None:
        """Note the end of a pass. Passes enqueued meanwhile keep the pace, too."""
        del self._busy[key]
        now = self._ended[key] = self._clock()
        if self._due.get(key, float("inf")) < now + PACE_S:
            self._due[key] = now + PACE_S
            heapq.heappush(self._heap, (now + PACE_S, key))
        self._changed.set()

    def _next(self) -> Key | None:
        """Take the next key that is due and not in a pass, or return None."""
        waiting = []
        found = None
        now = self._clock()
        while self._heap and found is None:
            due, key = heapq.heappop(self._heap)
            if self._due.get(key) != due:
                continue  # an earlier due time has replaced this entry, or the pass has begun
            if due > now or key in self._busy:
                waiting.append((due, key))
                if due > now:
                    break
            else:
                found = key
                del self._due[key]
        for item in waiting:
            heapq.heappush(self._heap, item)
        self._on_length(len(self._due))
        return found

    async def _wait(self) -> None:
        """Wait until a key is due or the queue changes."""
        if self._closed:
            return
        self._changed.clear()
        due = min((due for due, key in self._heap if key not in self._busy), default=None)
        try:
            async with asyncio.timeout(None if due is None else max(0.0, due - self._clock())):
                await self._changed.wait()
        except TimeoutError:
            pass


def _unknown(error: Exception) -> bool:
    """Whether an error is unexpected, so that the log needs its traceback."""
    return not type(error).__module__.startswith(("kraft_operator", "kraft_protocol"))
