"""The keys and positions of encoded records, for compaction: found without decoding the records.

All functions take the decompressed records of a batch as bytes. A record's start is its position in these bytes. These
loops are the hot part of compaction. So varints of one and two bytes, which are the most common, are read without a
call.
"""

from __future__ import annotations

from functools import cache
from itertools import repeat
from typing import Any, Final

from kraft_protocol.records.errors import CorruptBatch
from kraft_protocol.records.runs import NULL, RUN_MIN, run_at
from kraft_protocol.records.varint import read_varint, write_varint

TOMBSTONE: Final = 1 << 30
"""Marks the start of a record without a value; records are decompressed to at most 2^29 bytes."""
LOOP_MAX: Final = 64
"""Records that are read one by one before the next look for a run, at most."""
LONG_KEY: Final = 32
"""Keys longer than this are stored as a digest of 16 bytes."""
_SHORT: Final = 2 * LONG_KEY
"""LONG_KEY as a varint."""
_NO_DELTAS: Final = bytes(2)


def short_key(key: bytes) -> bytes:
    """The stored form of `key`: the key itself, or its digest."""
    digest: bytes = key if len(key) <= LONG_KEY else _blake2b()(key, digest_size=16).digest()
    return digest


@cache
def _blake2b() -> Any:
    """Loaded with the first long key: with `hashlib` comes OpenSSL, three megabytes of an idle node."""
    from hashlib import blake2b  # noqa: PLC0415

    return blake2b


def note_keys(data: bytes, count: int, places: dict[bytes, int], base: int, position: int = 0) -> None:
    """Note in `places` the position of the latest record of each key: `base` plus its start in `data`, plus TOMBSTONE
    if it has no value.

    Raises CorruptBatch unless `count` records fill `data` from `position` on.
    """
    left, patience = count, 0
    try:
        while left >= RUN_MIN:
            run = run_at(data, position, left)
            if run is None:
                patience = min(patience + RUN_MIN, LOOP_MAX)
                few = min(left, patience)
                position = note_few(data, position, few, places, base)
                left -= few
                continue
            patience = 0
            if run.key_size >= 0:
                keys = run.keys(data) if run.key_size <= LONG_KEY else map(short_key, run.keys(data))
                first = base + run.start + (TOMBSTONE if run.is_tombstone else 0)
                places.update(zip(keys, range(first, first + run.records * run.size, run.size), strict=True))
            position += run.records * run.size
            left -= run.records
        position = note_few(data, position, left, places, base)
    except IndexError:
        raise CorruptBatch("record is cut off") from None
    _check_end(data, position, count)


def note_few(data: bytes, position: int, count: int, places: dict[bytes, int], base: int) -> int:
    """As `note_keys`, one record after the other. Returns where the records end. Raises IndexError, CorruptBatch."""
    null, short = NULL, _SHORT
    for _ in range(count):
        start = at = position
        size = data[at]
        if size < 0x80:
            position = at + 1 + (size >> 1)
            at += 2
        elif data[at + 1] < 0x80:
            position = at + 2 + ((size + (data[at + 1] << 7) - 0x80) >> 1)
            at += 3
        else:
            size, at = _length(data, at)
            position = at + size
            at += 1
        while data[at] >= 0x80:  # the timestamp
            at += 1
        at += 1
        while data[at] >= 0x80:  # the offset
            at += 1
        length = data[at + 1]
        if length == null:
            continue
        at += 2
        if length <= short:
            stop = at + (length >> 1)
            key = data[at:stop]
        else:
            length, at = _length(data, at - 1)
            stop = at + length
            key = short_key(data[at:stop])
        places[key] = base + start if data[stop] != null else base + start + TOMBSTONE
    return position


def note_one(data: bytes, position: int, places: dict[bytes, int], base: int) -> int:
    """As `note_few` for the only record of a batch, which usually has deltas of 0 and a short key."""
    byte = data[position]
    if byte < 0x80:
        at = position + 4
        end = position + 1 + (byte >> 1)
    elif data[position + 1] < 0x80:
        at = position + 5
        end = position + 2 + ((byte + (data[position + 1] << 7) - 0x80) >> 1)
    else:
        return note_few(data, position, 1, places, base)
    length = data[at]
    if length > _SHORT or length & 1 or data[at - 2 : at] != _NO_DELTAS:
        return note_few(data, position, 1, places, base)
    at += 1
    stop = at + (length >> 1)
    places[data[at:stop]] = base + position if data[stop] != NULL else base + position + TOMBSTONE
    return end


def read_keys(data: bytes, count: int) -> tuple[list[bytes | None], list[int], bool]:
    """The keys in stored form, the starts of the records, and whether a record with a key has no value.

    Raises CorruptBatch.
    """
    keys: list[bytes | None] = []
    starts: list[int] = []
    position, left, patience, tombstones = 0, count, 0, False
    try:
        while left >= RUN_MIN:
            run = run_at(data, position, left)
            if run is None:
                patience = min(patience + RUN_MIN, LOOP_MAX)
                few = min(left, patience)
                position, found = _read_some(data, position, few, keys, starts)
                tombstones |= found
                left -= few
                continue
            patience = 0
            if run.key_size < 0:
                keys += repeat(None, run.records)
            else:
                keys += run.keys(data) if run.key_size <= LONG_KEY else map(short_key, run.keys(data))
            tombstones |= run.is_tombstone
            starts += run.starts
            position += run.records * run.size
            left -= run.records
        position, found = _read_some(data, position, left, keys, starts)
    except IndexError:
        raise CorruptBatch("record is cut off") from None
    _check_end(data, position, count)
    return keys, starts, tombstones or found


def _read_some(data: bytes, position: int, count: int, keys: list[bytes | None], starts: list[int]) -> tuple[int, bool]:
    """Read `count` records singly. Returns their end, and whether a tombstone is among them.

    Raises IndexError, CorruptBatch.
    """
    tombstones = False
    for _ in range(count):
        starts.append(position)
        at = position
        size = data[at]
        if size < 0x80:
            position = at + 1 + (size >> 1)
            at += 2
        elif data[at + 1] < 0x80:
            position = at + 2 + ((size + (data[at + 1] << 7) - 0x80) >> 1)
            at += 3
        else:
            size, at = _length(data, at)
            position = at + size
            at += 1
        while data[at] >= 0x80:  # the timestamp
            at += 1
        at += 1
        while data[at] >= 0x80:  # the offset
            at += 1
        length = data[at + 1]
        if length == NULL:
            keys.append(None)
            continue
        at += 2
        if length < 0x80:
            stop = at + (length >> 1)
        else:
            length, at = _length(data, at - 1)
            stop = at + length
        keys.append(data[at:stop] if stop - at <= LONG_KEY else short_key(data[at:stop]))
        if data[stop] == NULL:
            tombstones = True
    return position, tombstones


def is_tombstone(data: bytes, start: int) -> bool:
    """Whether the record at `start` has a key and no value."""
    _, at = read_varint(data, start)
    _, at = read_varint(data, at + 1)
    _, at = read_varint(data, at)
    length, at = read_varint(data, at)
    return length >= 0 and data[at + length] == NULL


def cut(data: bytes, starts: list[int]) -> tuple[bytes, int]:
    """The records at `starts`, unchanged, and the largest of their timestamp deltas. Raises CorruptBatch."""
    found: list[bytes] = []
    latest = -(1 << 63)
    short: set[int] = set()
    try:
        for start in starts:
            byte = data[start]
            if byte < 0x80:
                at, stop = start + 2, start + 1 + (byte >> 1)
            elif data[start + 1] < 0x80:
                at, stop = start + 3, start + 2 + ((byte + (data[start + 1] << 7) - 0x80) >> 1)
            else:
                size, at = read_varint(data, start)
                stop = at + size
                at += 1
            found.append(data[start:stop])
            byte = data[at]
            if byte < 0x80:
                short.add(byte)  # few are different
            else:
                latest = max(latest, read_varint(data, at)[0])
    except IndexError:
        raise CorruptBatch("record is cut off") from None
    if short:
        latest = max(latest, *((byte >> 1) ^ -(byte & 1) for byte in short))
    return b"".join(found), latest


def cut_and_shift(data: bytes, starts: list[int], shift: int) -> tuple[bytes, int]:
    """Like `cut`, with `shift` added to each timestamp delta, because the base timestamp of their batch changes."""
    out = bytearray()
    latest = -(1 << 63)
    try:
        for start in starts:
            size, at = read_varint(data, start)
            delta, after = read_varint(data, at + 1)
            delta += shift
            latest = max(latest, delta)
            head = bytearray(data[at : at + 1])
            write_varint(head, delta)
            write_varint(out, size - (after - at) + len(head))
            out += head
            out += data[after : at + size]
    except IndexError:
        raise CorruptBatch("record is cut off") from None
    return bytes(out), latest


def _check_end(data: bytes, position: int, count: int) -> None:
    if position != len(data):
        raise CorruptBatch(f"{count} records end at byte {position} of {len(data)}")


def _length(data: bytes, position: int) -> tuple[int, int]:
    length, after = read_varint(data, position)
    if length < 0:
        raise CorruptBatch(f"length {length} at byte {position}")
    return length, after
