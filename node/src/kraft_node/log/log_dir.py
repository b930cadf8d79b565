"""The shared parts of all logs of one log directory: open files, the background thread, and whether it has failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kraft_node.base.env import Env
from kraft_node.base.turns import Turns
from kraft_node.log.errors import LogDirDamaged, LogDirError, LogDirFailure, is_shortage
from kraft_node.log.segments.files import SHORTAGE_PAUSE_MS, FileCache
from kraft_node.log.waiting.policy_flush import PolicyFlushes
from kraft_node.log.waiting.write_budget import WriteBudget
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import ZERO_UUID, Uuid

PENDING_INDEX_BYTES: Final = 4096
"""Index entries that a segment gathers before it writes them: 512, for 2 MiB of log, or more with large batches."""


class ReportedLog(Protocol):
    """What a directory needs of a log that is damaged, or that was left half-way."""

    closed: bool
    topic: str
    partition: int


class LogDir:
    """A log directory: its path, its background thread, and whether it has failed.

    `lane` is the background thread of this directory. `failed` is set once and stays; then `on_failure` is called.
    """

    __slots__ = (
        "budget",
        "cut_step",
        "env",
        "failed",
        "files",
        "id",
        "lane",
        "on_failure",
        "path",
        "pending_index_bytes",
        "policy_flushes",
        "turns",
    )

    def __init__(self, env: Env, path: str, files: FileCache, directory_id: Uuid = ZERO_UUID) -> None:
        self.env = env
        self.path = path
        self.files = files
        self.id = directory_id
        self.lane = f"log-dir:{path}"
        self.turns = Turns(env)
        """Runs work on many files or logs in turns of the loop."""
        self.budget = WriteBudget(self)
        """How much may be appended before the disk must catch up."""
        self.policy_flushes = PolicyFlushes(self)
        """The flushes that `flush.messages` requires."""
        self.pending_index_bytes = PENDING_INDEX_BYTES
        self.cut_step: int | None = None
        """Segments that one step of a truncation or a reset drops before it raises CutLater; None: all of them."""
        self.failed: LogDirError | None = None
        self.on_failure: Callable[[LogDir], None] | None = None

    def promise_less(self, topic: str, partition: int, offset: int) -> None:
        """A log is about to be truncated to `offset`; data about it elsewhere must not promise more."""

    def tick(self) -> None:
        """Called from time to time by long scans of files; may raise to end the scan."""

    def fail(self, error: BaseException) -> KafkaError:
        """Take the directory offline.

        Returns the error for the caller. A shortage of descriptors does not take it offline.
        """
        if is_shortage(error):
            self.files.shed()
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {self.path}: {error}; try again")
        if self.failed is None:
            self.failed = error if isinstance(error, LogDirError) else LogDirFailure(self.path, error)
            if self.on_failure is not None:
                self.on_failure(self)
        return self.storage_error()

    def damaged(self, log: ReportedLog, error: LogDirDamaged) -> KafkaError:  # noqa: ARG002
        """Data of a log is damaged.

        Returns the error for the caller. Here the directory has one log and goes offline with it.
        """
        return self.fail(error)

    def unsettled(self, log: ReportedLog) -> None:
        """A change of a log was abandoned half-way for lack of a descriptor: its files are right, its state in memory
        is not.
        """

    def run(self, work: Callable[[], None], done: Callable[[], None], failed: Callable[[], None] | None = None) -> None:
        """Let the directory's thread run `work`, then call `done`.

        An error takes the directory offline and calls `failed`. While descriptors are short, `work` is retried.
        """

        def finished(result: BaseException | None) -> None:
            if not isinstance(result, BaseException):
                done()
            elif is_shortage(result) and self.failed is None:
                self.files.shed()
                self.env.scheduler.call_later(SHORTAGE_PAUSE_MS, self.run, work, done, failed)
            else:
                self.fail(result)
                if failed is not None:
                    failed()

        self.env.background.submit(self.lane, work, finished)

    def check(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if the directory has failed."""
        if self.failed is not None:
            raise self.storage_error()

    def storage_error(self) -> KafkaError:
        """The KAFKA_STORAGE_ERROR of a failed directory, for the caller to raise; names the failure."""
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {self.failed}")
