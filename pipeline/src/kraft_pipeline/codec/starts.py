"""Finds where each record begins.

A record starts with its length, which gives the start of the next record: a chain of n steps. A plain walk costs a
step of Python for each record. Here all batches are walked at once, with a NumPy step for the k-th record of all of
them. Before, large batches are cut into pieces, at places that look like the beginning of a record. Such a place has a
length, an attributes byte of 0, and a successor that looks the same with a larger offset delta. A piece must end
exactly where the next piece begins, which proves the cut, because a chain has only one course. If a cut was wrong,
everything is walked again without cuts.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from kraft_pipeline.codec.errors import CorruptBatch
from kraft_pipeline.codec.varints import Bytes, Ints, read

STEP_COST: Final = 12.0
CUT_COST: Final = 2.0
WINDOW_COST: Final = 0.005
"""Measured microseconds of a step of all walks, of finding a cut, and of each byte searched for it. They only determine
the number of cuts."""
FEW: Final = 24
"""With fewer remaining walks, a plain loop is faster than NumPy steps."""
CUTS_MIN_RECORDS: Final = 1500
WINDOW_MAX: Final = 1 << 14
"""Bytes searched for the beginning of a record. Larger records are so few that cuts do not pay."""
LENGTH_BYTES_MAX: Final = 3
"""Maximum bytes of the length of a record at a cut: records up to 1 MiB."""
RECORD_BYTES_MIN: Final = 7
"""Bytes of the smallest record: length, attributes, timestamp and offset deltas, two null fields, no headers."""


class Sections(NamedTuple):
    """The records of batches in a buffer: begin, end and number of records of each batch."""

    begins: Ints
    ends: Ints
    counts: Ints


def record_starts(data: Bytes, sections: Sections) -> Ints:
    """The positions of all records, in order. Raises CorruptBatch if records do not fill a section exactly.

    A record's length is only checked against the end of its section: callers must check the fields against the record's
    end.
    """
    total = int(sections.counts.sum())
    if total == 0:
        if np.any(sections.begins != sections.ends):
            raise CorruptBatch("bytes in a batch without records")
        return np.empty(0, np.int64)
    if np.any(sections.counts > (sections.ends - sections.begins) // RECORD_BYTES_MIN):
        raise CorruptBatch("a batch is too short for the record count in its header")
    cut = _cut(data, sections, total) if total >= CUTS_MIN_RECORDS else None
    found = _walk(data, *cut) if cut is not None else None
    if found is None:
        found = _walk(data, sections.begins, sections.ends)
    if found is None or len(found) != total:
        raise CorruptBatch("records do not fill their batch exactly")
    found.sort()
    # Even if the total is right, a section could have a record too many and another too few.
    if np.any(np.searchsorted(found, sections.ends) != np.cumsum(sections.counts)):
        raise CorruptBatch("the record count of a batch differs from its header")
    return found


def _walk(data: Bytes, at: Ints, stop: Ints) -> Ints | None:
    """Walk the chains from `at` to `stop`.

    Returns all positions, unordered; None if a chain does not end at its stop.
    """
    met = []
    wanted = at < stop
    if not wanted.all():
        at, stop = at[wanted], stop[wanted]
    while at.size >= FEW:
        met.append(at)
        at = _successors(data, at)
        wanted = at < stop
        if not wanted.all():
            if np.any(at > stop):
                return None
            at, stop = at[wanted], stop[wanted]
    for first, last in zip(at.tolist(), stop.tolist(), strict=True):
        one = _walk_alone(data, first, last)
        if one is None:
            return None
        met.append(one)
    return np.concatenate(met) if met else np.empty(0, np.int64)


def _successors(data: Bytes, at: Ints) -> Ints:
    """The positions of the records after the records at `at`: a reduced `read`. A negative length is not detected."""
    first = data.take(at, mode="clip")
    length = first.astype(np.int64)
    more = first > 0x7F
    if not more.any():
        return at + 1 + (length >> 1)
    second = data.take(at + 1, mode="clip")
    if np.any(more & (second > 0x7F)):
        value, after = read(data, at)
        return after + np.maximum(value, 0)
    length &= 0x7F
    length += (second.astype(np.int64) << 7) * more
    return at + 1 + more + (length >> 1)


def _walk_alone(data: Bytes, at: int, stop: int) -> Ints | None:
    """Walk a chain in plain Python."""
    view = data.data
    met = []
    try:
        while at < stop:
            met.append(at)
            byte = view[at]
            length, shift = byte & 0x7F, 7
            at += 1
            while byte > 0x7F:
                byte = view[at]
                length |= (byte & 0x7F) << shift
                shift += 7
                at += 1
            at += length >> 1
    except IndexError:
        return None
    return np.array(met, np.int64) if at == stop else None


def _cut(data: Bytes, sections: Sections, total: int) -> tuple[Ints, Ints] | None:
    """Begin and end of pieces with about equal numbers of records; None if cuts do not pay."""
    window = 2 * int((sections.ends - sections.begins).sum()) // total + 16
    piece = max(16, int((total * (CUT_COST + WINDOW_COST * window) / STEP_COST) ** 0.5))
    large = np.flatnonzero(sections.counts > 2 * piece)
    if window > WINDOW_MAX or not large.size:
        return None
    begins, ends, counts = sections.begins[large], sections.ends[large], sections.counts[large]
    pieces = counts // piece
    owner = np.repeat(np.arange(len(large)), pieces - 1)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(pieces - 1) - (pieces - 1), pieces - 1) + 1
    near = begins[owner] + (ends - begins)[owner] * number // pieces[owner]
    found = _first_records(data, near, ends[owner], window)
    marks = np.unique(found[found >= 0])
    # Pieces begin at the begins of sections and at marks, and end at the next piece or at the end of the section.
    all_begins = np.concatenate([sections.begins, marks])
    all_begins.sort()
    all_ends = np.concatenate([sections.ends, marks])
    all_ends.sort()
    return all_begins, all_ends


def _first_records(data: Bytes, near: Ints, ends: Ints, window: int) -> Ints:
    """For each place, the first position within the next `window` bytes that looks like a record; -1 without a
    match."""
    places = near[:, None] + np.arange(LENGTH_BYTES_MAX, window, dtype=np.int64)
    zeros = np.flatnonzero(((data.take(places, mode="clip") == 0) & (places < ends[:, None])).ravel())
    attributes = places.ravel()[zeros]
    owner = zeros // places.shape[1]
    found = np.full(len(near), np.iinfo(np.int64).max)
    before = [data.take(attributes - back) for back in range(1, LENGTH_BYTES_MAX + 1)]
    looks = before[0] < 0x80
    for size in range(1, LENGTH_BYTES_MAX + 1):
        if size > 1:
            looks = looks & (before[size - 1] > 0x7F)
        candidates = np.flatnonzero(looks)
        at, whose = attributes[candidates] - size, owner[candidates]
        good = _looks_like_records(data, at, ends[whose])
        np.minimum.at(found, whose[good], at[good])
    found[found == np.iinfo(np.int64).max] = -1
    return found


def _looks_like_records(data: Bytes, at: Ints, ends: Ints) -> np.typing.NDArray[np.bool_]:
    """Whether three consecutive records seem to begin at `at`, with growing offset deltas."""
    good = np.ones(len(at), np.bool_)
    last = np.full(len(at), -1, np.int64)
    for _ in range(3):
        length, body = read_safely(data, at)
        good &= (length >= 6) & (body + length < ends) & (data.take(body, mode="clip") == 0)
        _, after = read_safely(data, body + 1)
        delta, _ = read_safely(data, after)
        good &= delta > last
        last = delta
        at = np.where(good, body + length, 0)
    return good


def read_safely(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """`read` for arbitrary bytes: a number that is too long reads as -1."""
    first = data.take(at, mode="clip")
    bytes_ = [first, *(data.take(at + more, mode="clip") for more in range(1, 5))]
    raw = np.zeros(len(at), np.int64)
    size = np.zeros(len(at), np.int64)
    going = np.ones(len(at), np.bool_)
    for place, byte in enumerate(bytes_):
        raw += ((byte & 0x7F).astype(np.int64) << (7 * place)) * going
        size += going
        going = going & (byte > 0x7F)
    value = (raw >> 1) ^ -(raw & 1)
    value[going] = -1
    return value, at + size
