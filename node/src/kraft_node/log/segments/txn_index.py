"""The .txnindex of a segment: the aborted transactions with a marker in it, in the markers' order.

Entries of 34 bytes: i16 version 0, then i64 producer id, first offset, offset of the marker, last stable offset.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from kraft_node.base.env import Disk
from kraft_protocol.buffers import Buffer

ENTRY: Final = Struct(">hqqqq")
VERSION: Final = 0


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
