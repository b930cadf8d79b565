"""The one queue: which clusters want a pass, and when. Bounded by the number of clusters, as each is in it once.

Events put a cluster in it at once, a pass puts it in again for later; the earlier time wins. A cluster is never in two
passes at a time: what wants it meanwhile has it again afterwards. Events that come together, such as those of a pass's
own writes, make a single pass: it begins PACE_S after the pass before. Passes that fail come again ever later.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from kraft_operator.reconcile import Key

log = logging.getLogger("kraft_operator.queue")

WORKERS: Final = 4
"""Passes at once: they mostly wait for answers, and one slow cluster must not keep the others."""
PACE_S: Final = 0.1
"""From the end of a pass to the begin of the next one of the same cluster, at least."""
FAILED_S: Final = 0.5
"""Before the first repetition of a pass that failed; doubled up to FAILED_S_MAX."""
FAILED_S_MAX: Final = 30.0
CLUSTERS_MAX: Final = 10_000

Work = Callable[[Key], Awaitable[float | None]]


class Queue:
    """What is to be done, by whom it wakes."""

    def __init__(self, work: Work, clock: Callable[[], float], told: Callable[[int], None] = lambda _: None) -> None:
        """`work` is a pass: seconds until the next, None for never. `told` gets the queue's length."""
        self._work = work
        self._clock = clock
        self._told = told
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []
        self._busy: dict[Key, float] = {}
        """Since when."""
        self._ended: dict[Key, float] = {}
        """When the last pass ended; not of clusters that are gone."""
        self._closed = False
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def put(self, key: Key, after_s: float = 0.0) -> None:
        """Let it have a pass by then."""
        due = max(self._clock() + after_s, self._ended.get(key, float("-inf")) + PACE_S)
        if key not in self._due and len(self._due) >= CLUSTERS_MAX:
            log.error("more than %d clusters: %s/%s is not looked after", CLUSTERS_MAX, *key)
            return
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, key))
        self._changed.set()

    def close(self) -> None:
        """Begin no more passes: `run` ends once those at hand have ended."""
        self._closed = True
        self._changed.set()

    def longest_s(self) -> float:
        """How long the oldest pass at hand has taken by now."""
        now = self._clock()
        return now - min(self._busy.values(), default=now)

    async def run(self, workers: int = WORKERS) -> None:
        """Until cancelled or closed."""
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
            except Exception as error:  # noqa: BLE001, RUF100  (whatever it is, it is one cluster's)
                count = self._failures[key] = self._failures.get(key, 0) + 1
                after_s = min(FAILED_S * 2 ** min(count - 1, 10), FAILED_S_MAX)
                log.warning("%s/%s: the pass failed, again in %g s: %s", *key, after_s, error, exc_info=_unknown(error))
            finally:
                self._end(key)
            if after_s is not None:
                self.put(key, after_s)
            elif key not in self._due:
                self._ended.pop(key, None)

    def _end(self, key: Key) -> None:
        """Of a pass. What wanted it meanwhile keeps to the pace, too."""
        del self._busy[key]
        now = self._ended[key] = self._clock()
        if self._due.get(key, float("inf")) < now + PACE_S:
            self._due[key] = now + PACE_S
            heapq.heappush(self._heap, (now + PACE_S, key))
        self._changed.set()

    def _next(self) -> Key | None:
        """Whoever is due and not in a pass."""
        waiting = []
        found = None
        now = self._clock()
        while self._heap and found is None:
            due, key = heapq.heappop(self._heap)
            if self._due.get(key) != due:
                continue  # an earlier time has taken its place, or its pass has begun
            if due > now or key in self._busy:
                waiting.append((due, key))
                if due > now:
                    break
            else:
                found = key
                del self._due[key]
        for item in waiting:
            heapq.heappush(self._heap, item)
        self._told(len(self._due))
        return found

    async def _wait(self) -> None:
        """Until something is due, or has changed."""
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
    """Whether it is a mistake of ours, whose place in the code matters."""
    return not type(error).__module__.startswith("kraft_operator")
