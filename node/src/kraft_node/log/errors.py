"""What makes a log directory, or a log in it, unusable; and what passes.

- An I/O error ends the log directory (`LogDirFailure`), and no other one.
- Damage to data that had been durable ends the replica (`LogDirDamaged`): the directory quarantines it.
- A process without free descriptors waits (`is_shortage`): nothing is wrong with any file.
"""

from __future__ import annotations

import errno
from typing import Final

from kraft_node.base.errors import ErrorCode, KafkaError

SHORTAGES: Final = (errno.EMFILE, errno.ENFILE)


def is_shortage(error: BaseException) -> bool:
    """Whether the process or the system has no file descriptor left for the moment."""
    return isinstance(error, OSError) and error.errno in SHORTAGES


class CutLater(KafkaError):  # noqa: N818 - a state, not a fault
    """A log is not cut off yet: the checkpoints on disk promise more of it, and are being written with less."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"{topic}-{partition} is cut off at {offset} in a moment: the checkpoints are written with less first",
        )


class LogDirError(Exception):
    """A log directory can not be used; `directory` is its path."""

    def __init__(self, directory: str, message: str) -> None:
        super().__init__(f"{directory}: {message}")
        self.directory = directory


class LogDirFailure(LogDirError):  # noqa: N818
    """Reading, writing or fsync failed. What the files hold is unknown from now on: nothing is retried."""

    def __init__(self, directory: str, error: BaseException) -> None:
        super().__init__(directory, f"{type(error).__name__}: {error}")
        self.error = error


class LogDirDamaged(LogDirError):  # noqa: N818
    """Data that had been made durable is not what was written. Truncating it could lose committed records.

    `file` is the damaged file and `offset` the first log offset that cannot be trusted.
    """

    def __init__(self, directory: str, file: str, offset: int, reason: str) -> None:
        super().__init__(
            directory,
            f"{file} is damaged at offset {offset}: {reason}; these records were durable, so they are not cut off "
            "(fetched again from the leader where there is another replica; else restore the file and restart)",
        )
        self.file = file
        self.offset = offset
        self.reason = reason


class LogDirInvalid(LogDirError):  # noqa: N818
    """The directory belongs to another node or cluster, is not formatted, or is in use."""
