"""Finds where an archive diverges from the log: the end of a log directory may be archived before it is committed.

Offset and epoch identify a record. Two logs with a common record have all records before it in common. A committed
record is in the log of every later leader (Raft). If the log has another record than the archive, with a greater
epoch, the archive's record was never committed. The archive removes it with all later records. If the epoch in the log
is less, the log belongs to a node that lags.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft_pipeline.archive.errors import ArchiveError


class Positions(NamedTuple):
    """Offsets and epochs of a file of the archive, in the order of the log."""

    offsets: NDArray[np.int64]
    epochs: NDArray[np.int32]
    settled: NDArray[np.bool_]
    """Whether a row comes from a snapshot, and so is committed."""


class Span(NamedTuple):
    """Consecutive records of the log with the same epoch."""

    first: int
    last: int
    epoch: int


class Epochs:
    """The epochs of a log's records."""

    def __init__(self, spans: Sequence[Span]) -> None:
        """`spans` must not overlap."""
        ordered = sorted(spans)
        self._firsts = np.array([span.first for span in ordered], np.int64)
        self._lasts = np.array([span.last for span in ordered], np.int64)
        self._epochs = np.array([span.epoch for span in ordered], np.int32)

    @property
    def first(self) -> int:
        """The first offset; 0 if the log is empty."""
        return int(self._firsts[0]) if len(self._firsts) else 0

    @property
    def last(self) -> int:
        """The last offset; -1 if the log is empty."""
        return int(self._lasts[-1]) if len(self._lasts) else -1

    def of(self, offsets: NDArray[np.int64]) -> NDArray[np.int32]:
        """The epoch of each offset; -1 for offsets that the log does not have."""
        if not len(self._firsts):
            return np.full(len(offsets), -1, np.int32)
        at = np.searchsorted(self._firsts, offsets, "right") - 1
        there = (at >= 0) & (offsets <= self._lasts[at])
        return np.where(there, self._epochs[at], np.int32(-1))


def first_difference(log: Epochs, archive: Iterable[Positions]) -> int | None:
    """The first offset at which log and archive differ; None if they do not, or if the log begins later.

    `archive`: its files, newest first. Raises ArchiveError if the log lags, or is another log.
    """
    after: tuple[int, int] | None = None
    last, compared = -1, False
    for rows in archive:
        if not len(rows.offsets):
            continue
        last = max(last, int(rows.offsets[-1]))
        there = log.of(rows.offsets)
        common = np.flatnonzero((there == rows.epochs) | rows.settled)
        if len(common):
            at = int(common[-1]) + 1
            if at < len(rows.offsets):
                after = int(rows.offsets[at]), int(rows.epochs[at])
            return None if after is None or (last < log.first) else _check_truncated(log, *after, last)
        compared = compared or bool((there >= 0).any())
        if not compared and last < log.first:
            return None
        after = int(rows.offsets[0]), int(rows.epochs[0])
    if compared:
        raise ArchiveError(f"the log lacks the archive's records up to offset {last}: it is another log")
    if after is not None:
        raise ArchiveError(_behind(log, last))
    return None


def _check_truncated(log: Epochs, offset: int, epoch: int, last: int) -> int:
    """Raise ArchiveError unless the archive's first record after the common records was truncated, not the log's."""
    there = int(log.of(np.array([offset]))[0])
    if there < 0:
        raise ArchiveError(_behind(log, last))
    if there < epoch:
        raise ArchiveError(
            f"the archive has record {offset} of epoch {epoch}, the log has record {offset} of epoch {there}, which is"
            " older: the node of this log is behind. Archive the log of another node, or run again later"
        )
    return offset


def _behind(log: Epochs, last: int) -> str:
    return (
        f"the archive ends with record {last}, the log with record {log.last}: the node of this log is behind. Archive"
        " the log of another node, or run again later"
    )
