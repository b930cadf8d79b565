"""Flushes that `flush.messages` requires: begun by an append, made in a lane, awaited before acknowledgements.

If a flush is under way, all logs of a directory that need a flush share the next job. So a burst of appends to many
partitions costs the loop no fsync. Until the flush is done, the records do not count for the high watermark or as
fetched by this follower. A producer with acks=1 waits (Kafka flushes before `append` returns).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from kraft_node.base.calls import call_each
from kraft_node.log.segments.files import SHORTAGE_PAUSE_MS
from kraft_node.log.waiting.seams import WaitingDir
from kraft_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kraft_node.log.config import LogConfig

JOB_MAX: Final = 500
"""Logs that one job makes durable; the others wait for the next job."""

Waiter: TypeAlias = Callable[[ErrorCode], None]


class PreparedFlush(Protocol):
    """An fsync of one log. `flushing.Flush` implements it."""

    def work(self) -> None:
        """Fsync, in any thread. Raises OSError."""

    def done(self) -> bool:
        """Note that the data is durable. False if the log must be flushed again."""
        ...


class SettlingDir(WaitingDir, Protocol):
    """What a flush needs of a log directory."""

    @property
    def policy_flushes(self) -> PolicyFlushes:
        """The flushes of its logs."""
        ...


class SettlingLog(Protocol):
    """What a flush that `flush.messages` requires needs of a log."""

    closed: bool
    config: LogConfig
    end_offset: int
    recovery_point: int
    unsettled: Unsettled | None

    @property
    def dir(self) -> SettlingDir:
        """The log directory."""
        ...

    @property
    def settled_end(self) -> int:
        """The offset up to which records count as stored."""
        ...

    def begin_flush(self) -> PreparedFlush:
        """Prepare to make everything durable. Raises OSError."""
        ...


class Unsettled:
    """Records of one log that wait for a flush. Records below `end` count; `waiters` are called with an error code."""

    __slots__ = ("end", "moved", "waiters")

    def __init__(self, end: int) -> None:
        self.end = end
        self.moved: Callable[[], None] | None = None
        """Called when `Log.settled_end` has moved: set by the partition that counted it for its high watermark."""
        self.waiters: list[tuple[int, Waiter]] = []

    def take(self, settled: int | None, code: ErrorCode = ErrorCode.NONE) -> list[Callable[[], None]]:
        """Remove the waiters for offsets up to `settled` (None: all). Returns the calls to make once the log has
        changed.
        """
        due: list[Callable[[], None]] = [
            partial(done, code) for offset, done in self.waiters if settled is None or offset <= settled
        ]
        self.waiters = [] if settled is None else [entry for entry in self.waiters if entry[0] > settled]
        if self.moved is not None and code == ErrorCode.NONE:
            due.insert(0, self.moved)
        return due


class PolicyFlushes:
    """The flushes of one log directory: one job at a time."""

    __slots__ = ("_busy", "_dir", "_due", "_lane", "_prepared")

    def __init__(self, log_dir: WaitingDir) -> None:
        self._dir = log_dir
        self._lane = f"flush:{log_dir.path}"
        self._busy = False
        self._due: dict[SettlingLog, None] = {}
        self._prepared: list[tuple[SettlingLog, PreparedFlush]] = []

    def add(self, log: SettlingLog) -> None:
        """Flush the log with the next job."""
        self._due[log] = None
        self._begin()

    def _begin(self) -> None:
        if self._due and not self._busy:
            self._busy = True
            self._dir.turns.add(self._prepare)

    def _prepare(self) -> bool:
        """Prepare one log in each step, because a flush may have files to write first; then start the job."""
        log = next(iter(self._due), None)
        if log is not None:
            del self._due[log]
            if not log.closed and self._dir.failed is None:
                try:
                    self._prepared.append((log, log.begin_flush()))
                except OSError as e:
                    logs, self._prepared = [*[one for one, _ in self._prepared], log], []
                    self._failed(logs, e)
                    return False
        if self._due and len(self._prepared) < JOB_MAX:
            return True
        flushes, self._prepared = self._prepared, []
        if flushes:
            self._dir.env.background.submit(self._lane, partial(_work, flushes), partial(self._finished, flushes))
        else:
            self._busy = False
        return False

    def _again(self) -> None:
        """Try again later, because no descriptor is left."""

        def begin() -> None:
            self._busy = False
            self._begin()

        self._dir.env.scheduler.call_later(SHORTAGE_PAUSE_MS, begin)

    def _finished(self, flushes: list[tuple[SettlingLog, PreparedFlush]], result: BaseException | None) -> None:
        if isinstance(result, BaseException):
            self._failed([log for log, _ in flushes], result)
            return
        calls = [call for log, flush in flushes for call in self._settled(log, flush)]
        self._busy = False
        self._begin()
        call_each(calls)

    def _failed(self, logs: list[SettlingLog], error: BaseException) -> None:
        """Flush `logs` again after a shortage of descriptors; otherwise the directory is dead, and all flushes fail."""
        self._due = dict.fromkeys([*logs, *self._due])
        refused = self._dir.fail(error)
        if self._dir.failed is None:
            self._again()
            return
        dead, self._due = self._due, {}
        self._busy = False
        call_each([partial(abandon, log, ErrorCode(refused.code)) for log in dead])

    def _settled(self, log: SettlingLog, flush: PreparedFlush) -> list[Callable[[], None]]:
        """The calls for records that are durable now; a log with more to flush is due again."""
        unsettled = log.unsettled
        if unsettled is None or log.closed:
            return []
        if not flush.done():
            self._due[log] = None
            return []
        if log.end_offset - log.recovery_point < log.config.flush_messages:
            log.unsettled = None
            return unsettled.take(None)
        unsettled.end = max(unsettled.end, log.recovery_point)
        self._due[log] = None
        return unsettled.take(log.recovery_point)


def _work(flushes: list[tuple[SettlingLog, PreparedFlush]]) -> None:
    for _, flush in flushes:
        flush.work()


def after_append(log: SettlingLog, base: int) -> None:
    """Have a lane flush if `flush.messages` requires it after an append at `base`; the records count after the
    flush.
    """
    if log.end_offset - log.recovery_point >= log.config.flush_messages:
        _begin(log, base)


def wait(log: SettlingLog, offset: int, done: Waiter) -> None:
    """Call `done` with NONE once `Log.settled_end` has reached `offset`, or with an error.

    NOT_LEADER_OR_FOLLOWER: the records were truncated meanwhile, as only followers do. See `closed` for the others.
    """
    if offset > log.end_offset:
        done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    elif log.unsettled is None or log.settled_end >= offset:
        done(ErrorCode.NONE)
    else:
        log.unsettled.waiters.append((offset, done))


def truncated(log: SettlingLog, kept: int) -> None:
    """Records that are appended from now on are neither settled nor the records that were waited for; records below
    `kept` stay.

    The truncation goes on, so waiting calls are made in a later turn.
    """
    unsettled = log.unsettled
    if unsettled is None:
        return
    unsettled.end = min(unsettled.end, log.end_offset)
    gone = [done for offset, done in unsettled.waiters if offset > kept]
    if gone:
        unsettled.waiters = [entry for entry in unsettled.waiters if entry[0] <= kept]
        calls = [partial(done, ErrorCode.NOT_LEADER_OR_FOLLOWER) for done in gone]
        log.dir.env.scheduler.call_soon(call_each, calls)


def closed(log: SettlingLog) -> None:
    """Waiting records may or may not be in the log: no error may claim that they are not."""
    is_dead = log.dir.failed is not None
    abandon(log, ErrorCode.KAFKA_STORAGE_ERROR if is_dead else ErrorCode.REQUEST_TIMED_OUT)


def _begin(log: SettlingLog, base: int) -> None:
    if log.unsettled is None:
        log.unsettled = Unsettled(base)
    log.dir.policy_flushes.add(log)


def abandon(log: SettlingLog, code: ErrorCode) -> None:
    """Stop waiting for flushes, because all is durable or the log is no longer used. Waiters get `code`."""
    unsettled, log.unsettled = log.unsettled, None
    if unsettled is not None:
        call_each(unsettled.take(None, code))
