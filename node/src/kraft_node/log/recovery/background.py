"""Recovers logs outside the event loop: one thread per log directory; logs with requests come first.

After an unclean stop the part of a log above its recovery point is scanned, which takes seconds per gigabyte. A node
that scans on its loop misses heartbeats and liveness probes. So a short scan runs where the log is opened, and a long
scan in the directory's recovery lane. Until the lane is done, requests for the partition get a retriable error.

The lane also opens logs with very many files on first use, after clean stops, too: listing them takes long. And it
opens copies of logs that move (`futures`).

`LogManager.get` and `Housekeeping` call it. It owns no log: `LogManager` takes over the logs that the lane has opened.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from kraft_node.log import names
from kraft_node.log.config import LONG_MAX
from kraft_node.log.flushing import flush_now
from kraft_node.log.log_dir import LogDir
from kraft_node.log.manager.seams import LogTable
from kraft_node.log.segments.files import FileCache
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import HEADER, HEADER_SIZE, MAGIC

if TYPE_CHECKING:
    from kraft_node.base.env import Disk, Timer
    from kraft_node.log.log import Log
    from kraft_node.log.manager.directory import Directory
    from kraft_node.log.producers.producer_state import Awaited
    from kraft_protocol.buffers import Buffer

logger = logging.getLogger("kraft_node.log")

Key: TypeAlias = tuple[str, int]
"""Topic and partition."""

Opening: TypeAlias = "Callable[[LogDir], Log]"
"""Opens a log in any thread, through this log directory. Raises OSError, LogDirDamaged."""
Done: TypeAlias = "Callable[[Log | BaseException], None]"
"""Gets the log that a lane has opened, or the error."""

INLINE_BYTES_MAX: Final = 64 << 10
"""A scan of up to this many bytes stays on the loop: two milliseconds with batches of 250 bytes."""
INLINE_NAMES_BYTES: Final = 32 << 10
"""A log with a directory of up to this size is listed on the loop: some 800 files, a millisecond."""
SEGMENT_BYTES: Final = 4096
"""Opening the files of a segment costs as much as reading this many bytes."""
REFUSED_MAX: Final = 1000
"""Maximum of producers per log with noted refusals. Further producers are treated as in Kafka, which notes no
refusals.
"""
FILES_MAX: Final = 8
"""Files that a lane keeps open; it reads one segment at a time."""


class LogIsRecovering(KafkaError):  # noqa: N818 - a state, not a fault
    """The log is in its directory's recovery lane; `LogManager.on_recovered` is called when it is open."""

    def __init__(self, topic: str, partition: int, refused: Awaited) -> None:
        super().__init__(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"the log of {topic}-{partition} is being opened or recovered; retry until it is open",
        )
        self._refused = refused

    def refuses(self, records: Buffer) -> None:
        """Note that these records were refused, so that no later batch of their producer is appended first.

        A producer has up to five batches in flight. If the log opens between two of them, it does not know the producer
        and appends the second batch. The first batch, sent again, would then be out of order forever.
        """
        if len(records) < HEADER_SIZE:
            return
        fields = HEADER.unpack_from(records)
        producer_id, epoch, sequence = fields[9:12]
        if fields[3] != MAGIC or producer_id < 0:
            return
        known = self._refused.get(producer_id)
        if known[0] < epoch if known is not None else len(self._refused) < REFUSED_MAX:
            self._refused[producer_id] = (epoch, sequence)


def scan_bytes(disk: Disk, path: str, point: int) -> int:
    """Bytes of the segments above the recovery point, the maximum that a scan reads, plus a cost for each segment.

    Raises OSError.
    """
    found = [name for name in disk.listdir(path) if name.endswith(names.LOG)]
    ends = [names.parse_offset(name) or 0 for name in found[1:]]
    first = bisect_right(ends, point)
    sizes = [disk.size(f"{path}/{name}") for name in found[first:]]
    return sum(sizes) + len(sizes) * SEGMENT_BYTES


def _is_due(log: Log) -> bool:
    """Whether `flush.messages` requires a flush before records of this log may count.

    The process before may have been killed during this flush. It is unknown which of the records it acknowledged.
    """
    return log.unflushed >= log.config.flush_messages


class ScanStopped(Exception):  # noqa: N818 - not an error
    """The node stops: the scan ends, and the next start begins it again."""


class OnLoop(Exception):  # noqa: N818 - not an error
    """The log must be opened on the loop, because opening it changes the directory's checkpoints."""


class _Later:
    """The scheduler of a lane: stores calls until the loop takes them over."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def call_soon(self, function: Callable[..., None], *args: Any) -> Timer:
        return self.call_later(0, function, *args)

    def call_later(self, delay_ms: float, function: Callable[..., None], *args: Any) -> Timer:
        self.calls.append((delay_ms, function, args))
        return self

    def cancel(self) -> None:
        """No code in `log` cancels calls that a lane has scheduled."""


class _Apart(LogDir):
    """The log directory for a lane: separate open files and scheduler, no state of the loop."""

    __slots__ = ("_is_stopped", "later")

    def __init__(self, directory: LogDir, is_stopped: Callable[[], bool]) -> None:
        self.later = _Later()
        env = replace(directory.env, scheduler=self.later)
        super().__init__(env, directory.path, FileCache(env.disk, FILES_MAX), directory.id)
        self.pending_index_bytes = directory.pending_index_bytes
        self.lane = directory.lane
        self._is_stopped = is_stopped

    def promise_less(self, topic: str, partition: int, offset: int) -> None:  # noqa: ARG002
        raise OnLoop

    def tick(self) -> None:
        if self._is_stopped():
            raise ScanStopped


class RecoveredLogs(LogTable, Protocol):
    """The logs of a broker, which take over what a lane has opened."""

    on_recovered: Callable[[str, int], None]

    def opening(self, directory: Directory, topic: str, partition: int) -> Opening:
        """A function that opens the log; any thread may call it. Raises OSError, LogDirDamaged."""
        ...

    def take_over(self, directory: Directory, log: Log) -> Log:
        """Take a log that was just opened as the log of its partition."""
        ...

    def not_opened(self, directory: Directory, topic: str, partition: int, error: BaseException) -> KafkaError:
        """A log could not be opened. Returns the error for the caller."""
        ...

    def settle(self, log: Log) -> None:
        """Make a recovered log durable; close it unless a request has opened it meanwhile."""


class Recovery:
    """The recovery lanes of one `LogManager`."""

    def __init__(self, manager: RecoveredLogs) -> None:
        self._manager = manager
        self._bytes: dict[Key, int] = {}
        """Bytes that must be scanned, for logs that were checked."""
        self._waiting: dict[str, dict[Key, None]] = {}
        """By path of the directory: logs that wait for its lane, the next log last."""
        self._busy: dict[str, Key] = {}
        self._refused: dict[Key, Awaited] = {}
        """For requested logs in a lane: the refused batches of producers."""
        self._asked: set[Key] = set()
        """Logs in a lane that requests need: they stay open."""
        self._stopped = False
        self._when_idle: Callable[[], None] = lambda: None
        self.inline_bytes_max = INLINE_BYTES_MAX
        self.inline_names_bytes = INLINE_NAMES_BYTES

    def stop(self, done: Callable[[], None]) -> None:
        """End the scans, then call `done`: no lane uses files then. The logs stay unrecovered."""
        self._stopped = True
        self._waiting.clear()
        self._when_idle = done
        if not self._busy:
            done()

    def is_busy_with(self, topic: str, partition: int) -> bool:
        """Whether a lane uses files of this partition at the moment."""
        return (topic, partition) in self._busy.values()

    def takes(self, directory: Directory, topic: str, partition: int, *, first: bool = False) -> bool:
        """Whether the log belongs in the lane.

        If so, it is put there: with `first` as the next log, otherwise only if no other log waits. Raises OSError.
        """
        key = (topic, partition)
        is_busy = self._busy.get(directory.path) == key
        if not is_busy and not self._belongs(directory, key):
            return False
        if first:
            self._asked.add(key)
        if is_busy:
            return True
        waiting = self._waiting.setdefault(directory.path, {})
        if first:
            waiting.pop(key, None)
        if first or not waiting:
            waiting[key] = None
        self._next(directory)
        return True

    def _belongs(self, directory: Directory, key: Key) -> bool:
        """Whether a lane must open the log. Raises OSError.

        A log that waits for the lane stays there, though a change of its topic's configuration has made it short:
        those who were refused wait for the end of the lane.
        """
        if key in self._waiting.get(directory.path, ()):
            return True
        if key in directory.unrecovered:
            return self._is_long(directory, key)
        return key not in directory.quarantined and self.is_wide(directory, *key)

    def short(self, directory: Directory) -> list[Key]:
        """The unrecovered logs of a directory with a scan that is short enough for the loop. Raises OSError."""
        return [
            key for key in directory.unrecovered if not self.is_busy_with(*key) and not self._is_long(directory, key)
        ]

    def refused(self, topic: str, partition: int) -> Awaited:
        """Where to note refused batches of producers while the log is in its lane."""
        return self._refused.setdefault((topic, partition), {})

    def forget(self, topic: str, partition: int) -> None:
        """The log was opened or removed."""
        self._refused.pop((topic, partition), None)
        self._bytes.pop((topic, partition), None)
        self._asked.discard((topic, partition))
        for waiting in self._waiting.values():
            waiting.pop((topic, partition), None)

    def is_wide(self, directory: Directory, topic: str, partition: int) -> bool:
        """Whether the log may have so many files that the loop must not list them. Raises OSError."""
        return self._manager.env.disk.size(self._manager.path(directory, topic, partition)) > self.inline_names_bytes

    def cost(self, directory: Directory, topic: str, partition: int) -> int:
        """The cost of a scan of the log, in bytes read. Raises OSError."""
        return self._length(directory, (topic, partition))

    def _is_long(self, directory: Directory, key: Key) -> bool:
        """Whether the log belongs in the lane: for its length, its many files, or because it may have to be flushed
        there. Raises OSError.
        """
        if self.is_wide(directory, *key):
            return True
        has_policy = self._manager.topic_config(key[0]).flush_messages != LONG_MAX
        return self._length(directory, key) > self.inline_bytes_max or has_policy

    def _length(self, directory: Directory, key: Key) -> int:
        """What a scan of the log costs; see `scan_bytes`. Raises OSError."""
        known = self._bytes.get(key)
        if known is not None:
            return known
        # All of a damaged log is read.
        point = directory.promised(*key) if key not in directory.suspects else 0
        self._bytes[key] = length = scan_bytes(self._manager.env.disk, self._manager.path(directory, *key), point)
        return length

    def _next(self, directory: Directory) -> None:
        waiting = self._waiting.get(directory.path)
        if directory.path in self._busy or not waiting or self._stopped or not directory.online:
            return
        key, _ = waiting.popitem()
        was_clean = key not in directory.unrecovered
        event = "opening log in a lane" if was_clean else "recovering log"
        logger.info("%s partition=%s-%d bytes=%d", event, *key, self._bytes.get(key, 0))

        def done(result: Log | BaseException) -> None:
            if not self._stopped:
                self._finish(directory, key, result, was_clean=was_clean)
            elif was_clean and not isinstance(result, BaseException) and result.active.index_written:
                directory.unrecovered[key] = None  # nothing has made its rebuilt index durable: no clean mark

        opening = self._manager.opening(directory, *key)

        def settled(log_dir: LogDir) -> Log:
            log = opening(log_dir)
            if _is_due(log):
                flush_now(log)
            return log

        self._open(directory, key, settled, done)

    def open_copy(self, directory: Directory, key: Key, opening: Opening, done: Done) -> bool:
        """Have the directory's lane open the copy of a log, unless it is busy. Returns whether it is not.

        `done` gets the log or the error, also after a stop.
        """
        if directory.path in self._busy or self._stopped:
            return False
        logger.info("opening copy in a lane partition=%s-%d", *key)
        self._open(directory, key, opening, done)
        return True

    def _open(self, directory: Directory, key: Key, opening: Opening, done: Done) -> None:
        self._busy[directory.path] = key
        apart = _Apart(directory, lambda: self._stopped)

        def work() -> Log:
            log = opening(apart)
            log.segments.release()
            return log

        def ended(result: Log | BaseException) -> None:
            del self._busy[directory.path]
            for delay_ms, function, args in apart.later.calls:
                directory.env.scheduler.call_later(delay_ms, function, *args)
            done(result)
            if not self._stopped:
                self._next(directory)
            elif not self._busy:
                self._when_idle()

        directory.env.background.submit(f"recovery:{directory.path}", work, ended)

    def _finish(self, directory: Directory, key: Key, result: Log | BaseException, *, was_clean: bool) -> None:
        manager = self._manager
        refused = self._refused.get(key)
        is_asked = key in self._asked
        self.forget(*key)
        is_same = was_clean or key in directory.unrecovered
        if manager.entry(*key) is not directory or not is_same or not directory.online:
            return
        try:
            if isinstance(result, OnLoop):
                log = manager.open(directory, *key)
                if _is_due(log):
                    log.flush()
            elif isinstance(result, BaseException):
                raise manager.not_opened(directory, *key, result) from result
            else:
                log = manager.take_over(directory, result)
        except KafkaError:
            return  # reported already
        if refused:
            log.producers.awaited = refused
        if is_asked or refused or log.producers.know_more_than_snapshots():
            log.held = True  # the requests will be retried; a closed log would forget the awaited batches
        event = "opened log" if was_clean else "recovered log"
        logger.info("%s partition=%s-%d end_offset=%d", event, *key, log.end_offset)
        manager.on_recovered(*key)
        manager.settle(log)
