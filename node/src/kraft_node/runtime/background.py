"""One thread per lane for blocking work: fsync, deleting, compressing (`base.env.Background`)."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

from kraft_node.runtime.loop import Loop

log = logging.getLogger("kraft_node.runtime.background")

SWITCH_S: Final = 0.0001
"""How long the loop waits for the interpreter at most while a lane runs Python. With Python's 5 ms each request waited
for that time, 9 ms in the median beside another load; the lane does about as much work (`bench.measurements.lanes`)."""

T = TypeVar("T")
Job: TypeAlias = "tuple[Callable[[], Any], Callable[[Any], None]]"


class Completion:
    """The completion of a lane's job, on the loop. Slow completions are logged with its name."""

    __slots__ = ("_done", "_lane")

    def __init__(self, lane: str, done: Callable[[Any], None]) -> None:
        self._lane = lane
        self._done = done

    def __call__(self, result: object) -> None:
        self._done(result)

    def callback_name(self) -> str:
        """The lane and the callback as key=value pairs, for the log line of a slow completion."""
        return f"lane={self._lane} done={getattr(self._done, '__qualname__', type(self._done).__qualname__)}"


class ThreadBackground:
    """Lanes start with their first job. Callers limit their jobs: each requests one fsync at a time."""

    def __init__(self, loop: Loop) -> None:
        """Sets the interpreter's switch interval, for the whole process."""
        sys.setswitchinterval(SWITCH_S)
        self._loop = loop
        self._lanes: dict[str, SimpleQueue[Job | None]] = {}
        self._threads: list[threading.Thread] = []

    def submit(self, lane: str, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `work` after the lane's earlier jobs, then `done(result or exception)` on the loop.

        Raises RuntimeError if the lane's thread cannot start.
        """
        queue = self._lanes.get(lane)
        if queue is None:
            queue = SimpleQueue()
            thread = threading.Thread(target=self._run, args=(lane, queue), name=f"lane-{lane}", daemon=True)
            thread.start()  # may raise, at a limit of threads: then there is no lane, and the next job tries again
            self._threads.append(thread)
            self._lanes[lane] = queue
        queue.put((work, done))

    def close(self, wait_s: float) -> None:
        """Let every lane finish its jobs, for at most `wait_s` seconds each."""
        for queue in self._lanes.values():
            queue.put(None)
        for thread in self._threads:
            thread.join(wait_s)
            if thread.is_alive():
                log.warning("background lane still busy at exit lane=%s", thread.name)

    def _run(self, lane: str, queue: SimpleQueue[Job | None]) -> None:
        while True:
            job = queue.get()
            if job is None:
                return
            work, done = job
            result: Any
            try:
                result = work()
            except BaseException as e:
                result = e
            self._loop.call_from_thread(Completion(lane, done), result)
            del job, work, done, result  # an idle lane must not keep objects alive
