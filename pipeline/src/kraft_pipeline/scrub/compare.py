"""Compares the digests of all replicas of a partition."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft_pipeline.scrub import findings as kinds
from kraft_pipeline.scrub.scanner import FIELDS

BASE, LAST, POSITION, LENGTH, CRC, EPOCH, DAMAGED = range(len(FIELDS))


class Copy(NamedTuple):
    """The digests of one replica over a stretch of offsets."""

    start: int
    """First offset from which the replica must have everything below its high watermark."""
    high_watermark: int
    rows: NDArray[np.int64]
    """FIELDS of its batches in order, over all segments."""


class Difference(NamedTuple):
    """A difference of one replica (by its index among the copies) from the others."""

    copy: int
    kind: str
    base: int
    last: int
    row: int
    """Index in the copy's rows; -1 if the batch is missing."""
    healthy: tuple[int, int] | None
    """A copy with the correct batch, and its row, or None."""
    detail: str


def compare(copies: list[Copy], *, compacted: bool) -> list[Difference]:
    """Find where the copies differ below the lower of two high watermarks.

    The content of most copies counts as right; without a majority, each copy is reported. Damaged batches were found
    before: for them, only the healthy copy is looked up. For compacted logs the rows are records, and only offsets
    that two copies have are compared.
    """
    keys = np.concatenate([copy.rows[:, BASE] for copy in copies]) if copies else np.empty(0, np.int64)
    if not len(keys):
        return []
    owner = np.repeat(np.arange(len(copies)), [len(copy.rows) for copy in copies])
    number = np.concatenate([np.arange(len(copy.rows)) for copy in copies])
    rows = np.concatenate([copy.rows for copy in copies])
    within = rows[:, DAMAGED] == 1
    within |= rows[:, LAST] < np.array([copy.high_watermark for copy in copies])[owner]
    order = np.flatnonzero(within)[np.argsort(keys[within], kind="stable")]
    keys, owner, number, rows = keys[order], owner[order], number[order], rows[order]
    if not len(keys):
        return []
    firsts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    group = np.cumsum(np.concatenate([[0], (keys[1:] != keys[:-1]).astype(np.int64)]))
    what = [LENGTH, CRC] if compacted else [LAST, LENGTH, CRC, EPOCH]
    odd = np.any(rows[:, what] != rows[firsts[group]][:, what], axis=1) | (rows[:, DAMAGED] == 1)
    suspect = np.zeros(len(firsts), np.bool_)
    np.logical_or.at(suspect, group, odd)
    if not compacted:
        sizes = np.diff(np.append(firsts, len(keys)))
        bases, lasts = keys[firsts], rows[firsts, LAST]
        due = np.zeros(len(firsts), np.int64)
        for copy in copies:
            due += (bases >= copy.start) & (lasts < copy.high_watermark)
        suspect |= sizes < due
    bounds = np.append(firsts, len(keys))
    found: list[Difference] = []
    for which in np.flatnonzero(suspect).tolist():
        members = range(int(bounds[which]), int(bounds[which + 1]))
        entries = {int(owner[i]): (int(number[i]), rows[i]) for i in members}
        found += _group(copies, entries, compacted=compacted)
    return _without_covered(found, copies)


def _group(
    copies: list[Copy], entries: dict[int, tuple[int, NDArray[np.int64]]], *, compacted: bool
) -> list[Difference]:
    """Compare the batches of all copies that begin at one offset."""
    what = [LENGTH, CRC] if compacted else [LAST, LENGTH, CRC, EPOCH]
    votes = Counter(tuple(row[what].tolist()) for _, row in entries.values() if not row[DAMAGED])
    if not votes:
        return []
    ranked = votes.most_common()
    is_clear = len(ranked) == 1 or ranked[0][1] > ranked[1][1]
    right = ranked[0][0]
    healthy = next((c, n) for c, (n, row) in entries.items() if not row[DAMAGED] and tuple(row[what].tolist()) == right)
    base = int(next(iter(entries.values()))[1][BASE])
    last = int(copies[healthy[0]].rows[healthy[1], LAST])
    found = []
    for index, copy in enumerate(copies):
        if index not in entries:
            if not compacted and copy.start <= base and last < copy.high_watermark:
                found.append(
                    Difference(index, kinds.MISSING, base, last, -1, healthy, "other replicas have this batch")
                )
            continue
        number, row = entries[index]
        if row[DAMAGED]:
            found.append(Difference(index, "", base, int(row[LAST]), number, healthy, ""))
        elif not is_clear:
            detail = f"no two of {len(entries)} replicas agree" if len(votes) == len(entries) else "replicas disagree"
            found.append(Difference(index, kinds.DIFFERS, base, int(row[LAST]), number, None, detail))
        elif tuple(row[what].tolist()) != right:
            detail = f"{votes[right]} of {len(entries)} replicas have another batch"
            found.append(Difference(index, kinds.DIFFERS, base, int(row[LAST]), number, healthy, detail))
    return found


def _without_covered(found: list[Difference], copies: list[Copy]) -> list[Difference]:
    """Leave out missing batches with offsets that are already known to be damaged on the same replica."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for index, copy in enumerate(copies):
        damaged = copy.rows[copy.rows[:, DAMAGED] == 1]
        spans[index] = [(int(row[BASE]), int(row[LAST])) for row in damaged]
    return [
        d for d in found if d.kind != kinds.MISSING or not any(b <= d.base and d.last <= e for b, e in spans[d.copy])
    ]
