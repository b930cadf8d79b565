"""Errors that make a log directory or a log unusable, and temporary errors.

- An I/O error takes the log directory offline (`LogDirFailure`), and no other directory.
- Damage to durable data ends the replica (`LogDirDamaged`): the directory quarantines it.
- A process without free descriptors waits (`is_shortage`): the files are not affected.
"""

from __future__ import annotations

import errno
from typing import Final

from kraft_protocol.errors import ErrorCode, KafkaError

SHORTAGES: Final = (errno.EMFILE, errno.ENFILE)


def is_shortage(error: BaseException | None) -> bool:
    """Whether the process or the system has no free file descriptor at the moment."""
    return isinstance(error, OSError) and error.errno in SHORTAGES


class CutLater(KafkaError):  # noqa: N818 - a state, not a fault
    """A log cannot be truncated yet: the checkpoints on disk promise more, or many segments must be dropped.

    Retry: the checkpoints are being written again. Or (`is_soon`) some segments have been dropped, and the next
    segments may be dropped in the next turn of the loop.
    """

    def __init__(self, topic: str, partition: int, offset: int, *, is_soon: bool = False) -> None:
        self.is_soon = is_soon
        super().__init__(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"{topic}-{partition} is being truncated to {offset}; retry",
        )


class LogDirError(Exception):
    """A log directory cannot be used; `directory` is its path."""

    def __init__(self, directory: str, message: str) -> None:
        super().__init__(f"{directory}: {message}")
        self.directory = directory


class LogDirFailure(LogDirError):  # noqa: N818
    """Reading, writing or fsync failed. The content of the files is unknown from now on: nothing is retried."""

    def __init__(self, directory: str, error: BaseException) -> None:
        super().__init__(directory, f"{type(error).__name__}: {error}")
        self.error = error


class LogDirDamaged(LogDirError):  # noqa: N818
    """Durable data differs from the data that was written. Truncating it could lose committed records.

    `file` is the damaged file, `offset` the first untrusted log offset.
    """

    def __init__(self, directory: str, file: str, offset: int, reason: str) -> None:
        super().__init__(
            directory,
            f"{file} is damaged at offset {offset}: {reason}; these records were durable, so they are not truncated "
            "(if there is another replica, they are fetched again from the leader; else restore the file and restart)",
        )
        self.file = file
        self.offset = offset
        self.reason = reason


class LogDirInvalid(LogDirError):  # noqa: N818
    """The directory belongs to another node or cluster, is not formatted, or is in use."""
