"""The .txnindex of a segment: the aborted transactions with a marker in it, in the markers' order.

Entries of 34 bytes: i16 version 0, then i64 producer id, first offset, offset of the marker, last stable offset.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import Final, NamedTuple

from kraft_node.base.env import Disk, File
from kraft_protocol.buffers import Buffer

ENTRY: Final = Struct(">hqqqq")
VERSION: Final = 0
READ_AT_ONCE: Final = 128
"""Entries in one read: about a page."""


class AbortedTxn(NamedTuple):
    """One aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def decode(data: Buffer) -> list[AbortedTxn]:
    """The whole entries in `data`."""
    end = len(data) // ENTRY.size * ENTRY.size
    return [AbortedTxn(*fields[1:]) for fields in ENTRY.iter_unpack(memoryview(data)[:end])]


def read(disk: Disk, path: str) -> list[AbortedTxn]:
    """The entries of the file at `path`; empty if it is missing. Raises OSError."""
    try:
        file = disk.open(path, read_only=True)
    except FileNotFoundError:
        return []
    try:
        return decode(file.pread(0, file.size()))
    finally:
        file.close()


def between(disk: Disk, path: str, start: int, end: int) -> tuple[list[AbortedTxn], bool]:
    """The transactions that ended at or after `start` and began before `end`; whether no later index has any.

    A segment may have 100,000 entries, and readers of its end fetch often: entries before `start` are skipped by a
    binary search. The file may be missing. Raises OSError, ColdRead.
    """
    try:
        file = disk.open(path, read_only=True)
    except FileNotFoundError:
        return [], False
    try:
        count = file.size() // ENTRY.size
        found: list[AbortedTxn] = []
        for first in range(_first_block(file, count, start), count, READ_AT_ONCE):
            for txn in _block(file, first, count):
                if txn.last_offset >= start and txn.first_offset < end:
                    found.append(txn)
                if txn.last_stable_offset >= end:
                    return found, True
        return found, False
    finally:
        file.close()


def _block(file: File, first: int, count: int) -> list[AbortedTxn]:
    return decode(file.pread(first * ENTRY.size, min(READ_AT_ONCE, count - first) * ENTRY.size))


def _first_block(file: File, count: int, offset: int) -> int:
    """The first entry of the first block with a transaction that ended at or after `offset`."""

    def last_offset(block: int) -> int:
        (last,) = decode(file.pread((block * READ_AT_ONCE + READ_AT_ONCE - 1) * ENTRY.size, ENTRY.size))
        return last.last_offset

    return bisect_left(range(max(count - 1, 0) // READ_AT_ONCE), offset, key=last_offset) * READ_AT_ONCE


def append(disk: Disk, path: str, txn: AbortedTxn) -> None:
    """Add an entry. Raises OSError."""
    file = disk.open(path, create=True)
    try:
        file.pwrite(file.size() // ENTRY.size * ENTRY.size, [ENTRY.pack(VERSION, *txn)])
    finally:
        file.close()


def truncate(disk: Disk, path: str, offset: int) -> None:
    """Remove the transactions that ended at or after `offset`. Raises OSError.

    A loss of power may take an entry and keep a later one, which leaves a hole of zeros. Nothing after a hole was
    promised as durable, so it is removed, too.
    """
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return
    try:
        kept, last = 0, -1
        for txn in decode(file.pread(0, file.size())):
            if not max(last, txn.first_offset) < txn.last_offset < offset:
                break
            kept, last = kept + 1, txn.last_offset
        file.truncate(kept * ENTRY.size)
    finally:
        file.close()
