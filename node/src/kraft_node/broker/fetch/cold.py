"""Brings what look-ups of a fetch need into memory: lanes read it, and the fetch looks it up again.

A look-up of bytes that are not in memory would block the event loop for as long as the disk takes. So it ends with
ColdRead, and a lane reads these bytes, and others around them. The lane's result is the page cache, never an answer:
the log may have been truncated, deleted, moved or rolled meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final
from zlib import crc32

from kraft_node.base.env import Background, ColdRead, Disk, read_lane

BLOCK_BYTES: Final = 256 * 1024
"""Bytes that a lane reads around a cold position: a binary search in an index of 2 MiB needs four blocks of this
size."""


def bring_in(disk: Disk, background: Background, cold: Sequence[ColdRead], done: Callable[[], None]) -> None:
    """Let lanes read these bytes, then call `done` on the loop, also if some cannot be read."""
    left = len(cold)

    def finished(_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            done()

    for read in cold:
        lane = read_lane(read.path, crc32(read.path.encode()))
        background.submit(lane, partial(_read, disk, read), finished)


def _read(disk: Disk, cold: ColdRead) -> None:
    with suppress(OSError):  # the next look-up meets the error, unless the file is gone because the log has changed
        file = disk.open(cold.path, read_only=True)
        try:
            position = cold.position - cold.position % BLOCK_BYTES
            end = cold.position + cold.length
            while position < end and file.pread(position, BLOCK_BYTES):
                position += BLOCK_BYTES
        finally:
            file.close()
