"""Failures of records, which become dead letters, and of runs, which wait, stop, or are refused.

A task on an executor returns its failure as a `Failure`. No decision depends on the text of an exception.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from kraft_pipeline.codec import CodecError
from kraft_pipeline.tables.specs.table_spec import SpecError
from kraft_protocol.client.errors import RETRIABLE, BrokerError, ClientError, DataLossError

SPARK: Final = "spark"
"""Code of a failure of Spark itself: lost executors, killed workers, too little memory."""
REASON_CHARACTERS: Final = 200
"""Maximum length of a dead letter's reason."""


class Bad(NamedTuple):
    """Why a record is not a row: a stable code such as `json.type`, and a text that names the field and the value."""

    code: str
    reason: str


class RecordError(ValueError):
    """A record cannot be a row of the table, so it becomes a dead letter."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.bad = Bad(code, reason[:REASON_CHARACTERS])


class RefusedError(ClientError):
    """A service refuses this client because the address or the credentials are wrong. A retry does not help."""


class ConflictError(Exception):
    """Another writer committed first; the message names the table and the batch."""


class FencedError(ConflictError):
    """Another writer has taken over the table, so no commit of this writer can succeed. Do not retry."""


class PanicError(Exception):
    """A library in Rust has panicked: a defect of the library."""


@contextmanager
def panics_explained() -> Iterator[None]:
    """Raise a panic as PanicError. It is no `Exception`, so it would end a thread without a word."""
    try:
        yield
    except BaseException as e:
        if type(e).__name__ != "PanicException":  # each library has a class of its own, which cannot be imported
            raise
        raise PanicError(f"{type(e).__module__} panicked: {e}") from e


class Failure(NamedTuple):
    """An exception in a form that processes can send to one another."""

    code: str
    """Stable: the name of the exception's class, or `broker.` and the protocol's error code."""
    kind: str
    """`environment` (a broker, a disk, a registry), `data` (records are lost or damaged), `specification`, `conflict`
    (another writer), `defect`."""
    retriable: bool
    """Whether the same task may succeed later without a change of the specification."""
    message: str
    trace: str = ""


class TaskError(Exception):
    """A task failed on an executor."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def failure_of(error: BaseException) -> Failure:
    """Convert an exception, and classify it by its class."""
    if isinstance(error, TaskError):
        return error.failure
    code, kind, retriable = type(error).__name__, "defect", False
    if isinstance(error, BrokerError):
        code, kind, retriable = f"broker.{error.code}", "environment", error.code in RETRIABLE
    elif isinstance(error, DataLossError | CodecError):
        kind = "data"
    elif isinstance(error, SpecError):
        kind = "specification"
    elif isinstance(error, ConflictError):
        kind = "conflict"
    elif isinstance(error, ClientError | OSError):
        kind = "environment"
        retriable = not isinstance(error, RefusedError | PermissionError | NotADirectoryError)
    trace = "".join(traceback.format_exception(error))
    return Failure(code, kind, retriable, f"{error}" or type(error).__name__, trace)


def error_of(failure: Failure) -> Exception:
    """Inverse of `failure_of` for exceptions that a run distinguishes; TaskError for others."""
    if failure.kind == "specification":
        return SpecError(failure.message)
    if failure.kind == "conflict":
        kind = FencedError if failure.code == FencedError.__name__ else ConflictError
        return kind(failure.message)
    return TaskError(failure)
