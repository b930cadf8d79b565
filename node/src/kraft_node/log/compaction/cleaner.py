"""Compacts the logs of a node, the dirtiest first, at a limited rate; keeps the figures of passes.

The timer of `housekeeping` drives it. Passes of several logs may run in parallel (`log.cleaner.threads`), each in its
own lane.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kraft_node.base import rare
from kraft_node.log.compaction.choice import Dirt, look
from kraft_node.log.compaction.cleaning import KEYS_MAX, STOPPED, Cleaning, Steps, Work
from kraft_node.log.compaction.figures import Figures, PassFigures
from kraft_node.log.errors import LogDirDamaged
from kraft_protocol.records.errors import BatchError

if TYPE_CHECKING:
    from kraft_node.base.env import Env
    from kraft_node.log.log import Log

logger = logging.getLogger("kraft_node.log")

UNLIMITED: Final = float("inf")
PAUSE_MIN_MS: Final = 10
"""A pass pauses if it is ahead of the allowed rate by at least this time."""
FEW_KEYS: Final = 5
"""Room of the map of a pass on a rare path."""


class Cleaner:
    """The passes of one node. `start` begins the due passes."""

    __slots__ = (
        "_dirty_bytes",
        "_done",
        "_env",
        "bytes_per_second",
        "figures",
        "keys_max",
        "running",
        "threads",
        "uncleanable",
    )

    def __init__(self, env: Env, done: Callable[[Log, int], None], keys_max: int = KEYS_MAX) -> None:
        """`done(log, offset)` is called with the offset below which the log is now clean."""
        self._env = env
        self._done = done
        self.keys_max = keys_max
        """Maximum of keys in the map of a pass."""
        self.threads = 1
        """Maximum of concurrent passes."""
        self.bytes_per_second = UNLIMITED
        """Maximum of bytes per second that all passes together may read and write."""
        self.running: dict[str, int] = {}
        """The logs that are being compacted, by name, with the lane number of each pass."""
        self.uncleanable: dict[str, Log] = {}
        """Logs with a failed pass, by name; they are left alone until they are opened again."""
        self._dirty_bytes: dict[str, int] = {}
        """Bytes of the dirty part, by name: of uncleanable logs, and of logs that are being compacted."""
        self.figures = Figures()

    def start(self, candidates: Iterable[tuple[Log, int]], now_ms: int) -> bool:
        """Start a pass over the dirtiest of (log, first dirty offset). Returns whether a pass was started."""
        self.figures.last_run_ms = self._env.clock.monotonic_ms()
        self.uncleanable = {name: log for name, log in self.uncleanable.items() if not log.closed}
        self._dirty_bytes = {
            name: size for name, size in self._dirty_bytes.items() if name in self.uncleanable or name in self.running
        }
        due: list[tuple[float, Log, Dirt]] = []
        dirtiest, longest_delay_ms = 0.0, 0
        for log, first_dirty in candidates:
            if log.name in self.running or log.dir.failed is not None:
                continue
            try:
                dirt = look(log, first_dirty, now_ms)
            except (OSError, LogDirDamaged) as e:
                self._gave_up(log, e)
                continue
            if log.name in self.uncleanable:
                self._dirty_bytes[log.name] = dirt.dirty_bytes
                continue
            dirtiest, longest_delay_ms = max(dirtiest, dirt.ratio), max(longest_delay_ms, dirt.delay_ms)
            if dirt.is_due(log.config.min_cleanable_dirty_ratio):
                due.append((dirt.ratio, log, dirt))
        self.figures.max_dirty_ratio = dirtiest
        self.figures.max_delay_ms = longest_delay_ms
        due.sort(key=lambda each: each[0], reverse=True)
        free = max(self.threads - len(self.running), 0)
        for _, log, dirt in due[:free]:
            self._begin(log, dirt, now_ms)
        return bool(due[:free])

    def uncleanable_bytes(self, path: str) -> int:
        """The dirty bytes of the uncleanable logs in the directory at `path`, by the last look."""
        return sum(self._dirty_bytes.get(name, 0) for name, log in self.uncleanable.items() if log.dir.path == path)

    def forget(self, log: Log) -> None:
        """The log was removed, or is no longer compacted."""
        if self.uncleanable.get(log.name) is log:
            del self.uncleanable[log.name]
            self._dirty_bytes.pop(log.name, None)

    def _begin(self, log: Log, dirt: Dirt, now_ms: int) -> None:
        taken = self.running.values()
        self.running[log.name] = next(lane for lane in range(len(taken) + 1) if lane not in taken)
        keys_max = min(FEW_KEYS, self.keys_max) if rare.takes("key map small") else self.keys_max
        cleaning = Cleaning(log, dirt.first_dirty, now_ms, keys_max)
        self._dirty_bytes[log.name] = dirt.dirty_bytes
        self._go_on(_Pass(log, cleaning, self._env.clock.monotonic_ms()))

    def _go_on(self, one: _Pass) -> None:
        if not one.log.closed and (pause := self._pause_ms(one)) >= PAUSE_MIN_MS:
            self._env.scheduler.call_later(pause, self._take_step, one)
        else:
            self._take_step(one)

    def _pause_ms(self, one: _Pass) -> int:
        """How long a pass must wait to stay within the allowed rate."""
        rate = self.bytes_per_second / max(len(self.running), 1)
        if rate >= 1e15:
            return 0
        elapsed_ms = self._env.clock.monotonic_ms() - one.begun_ms
        return int(one.cleaning.bytes_handled * 1000 / max(rate, 1.0)) - elapsed_ms

    def _take_step(self, one: _Pass) -> None:
        try:
            work = next(one.steps)
        except StopIteration as end:
            self._ended(one, end.value)
            return
        except Exception as e:
            self._end(one)
            self._gave_up(one.log, e)
            return
        self._submit(one, work)

    def _submit(self, one: _Pass, work: Work) -> None:
        def worked(result: BaseException | None) -> None:
            if isinstance(result, BaseException):
                one.steps.close()
                self._end(one)
                self._gave_up(one.log, result)
            else:
                self._go_on(one)

        self._env.background.submit(f"cleaner:{self.running[one.log.name]}", work, worked)

    def _end(self, one: _Pass) -> None:
        """The pass takes no more steps; a lane frees a large map."""
        lane = self.running.pop(one.log.name)
        keys = one.cleaning.keys
        if keys.is_large:
            self._env.background.submit(f"cleaner:{lane}", keys.release, lambda _: None)

    def _ended(self, one: _Pass, offset: int) -> None:
        log, cleaning = one.log, one.cleaning
        keys, utilization = len(cleaning.keys), cleaning.keys.utilization
        self._end(one)
        if offset == STOPPED:
            return
        took_ms = self._env.clock.monotonic_ms() - one.begun_ms
        self.figures.passes.append(PassFigures(took_ms, utilization, cleaning.bytes_read, cleaning.bytes_written))
        logger.info(
            "log compacted log=%s offset=%d bytes_before=%d bytes_after=%d keys=%d ms=%d",
            log.name,
            offset,
            cleaning.bytes_before,
            cleaning.bytes_after,
            keys,
            took_ms,
        )
        self._done(log, offset)

    def _gave_up(self, log: Log, error: BaseException) -> None:
        """Handle a pass that ended early. Raises unexpected errors; the next log gets its turn anyway."""
        if log.closed:
            return
        if isinstance(error, LogDirDamaged):
            log.dir.damaged(log, error)
        elif isinstance(error, OSError):
            log.dir.fail(error)  # a shortage of descriptors only delays the pass
        else:
            self.uncleanable[log.name] = log
            logger.error("log cannot be compacted log=%s reason=%r", log.name, error)
            if not isinstance(error, BatchError):
                raise error


class _Pass:
    """A running pass."""

    __slots__ = ("begun_ms", "cleaning", "log", "steps")

    def __init__(self, log: Log, cleaning: Cleaning, begun_ms: int) -> None:
        self.log = log
        self.cleaning = cleaning
        self.steps: Steps = cleaning.steps()
        self.begun_ms = begun_ms
