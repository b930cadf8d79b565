"""Whether bytes of a file are in the page cache, and how a lane reads them into it.

A read or sendfile of bytes that are not in memory waits for the disk and blocks the whole loop. So the loop checks
first: a read with RWF_NOWAIT fails at once if it would have to wait.
"""

from __future__ import annotations

import errno
import os
from typing import Final

PROBE_BYTES: Final = 512 * 1024
"""The distance between two probes of a range: the kernel evicts large parts of a file at once."""
PIECE_BYTES: Final = 256 * 1024
"""Bytes per read of a lane."""
AHEAD_BYTES: Final = 2 << 20
"""Bytes that the kernel reads ahead beyond a range, so that most of the next range is in memory."""

_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
_UNSUPPORTED: Final = (errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)
_byte = bytearray(1)
_buffers = [_byte]


def is_resident(fd: int, position: int, length: int) -> bool:
    """Whether a range is in the page cache, checked by samples. True if the system or the file system cannot
    answer."""
    if not _NOWAIT:
        return True
    last = position + length - 1
    try:
        if length > PROBE_BYTES:
            for at in range(position, last, PROBE_BYTES):
                os.preadv(fd, _buffers, at, _NOWAIT)
        os.preadv(fd, _buffers, last, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError as e:
        if e.errno in _UNSUPPORTED:
            return True
        raise
    return True


def read_resident(fd: int, position: int, length: int) -> bytearray | None:
    """The bytes at `position`, fewer at the end of the file; None if some are not in the page cache.

    If the system or the file system cannot answer, it reads them in any case. Raises OSError.
    """
    buffer = bytearray(length)
    try:
        got = os.preadv(fd, (buffer,), position, _NOWAIT)
        if got == length:
            return buffer
        while 0 < got < length:
            more = os.preadv(fd, (memoryview(buffer)[got:],), position + got, _NOWAIT)
            if not more:
                break
            got += more
    except BlockingIOError:
        return None
    except OSError as e:
        if e.errno not in _UNSUPPORTED:
            raise
        got = _read_all(fd, position, buffer)
    return buffer[:got]


def _read_all(fd: int, position: int, buffer: bytearray) -> int:
    """Fill `buffer` as far as the file goes. Returns the number of bytes."""
    view, got = memoryview(buffer), 0
    while got < len(buffer):
        count = os.preadv(fd, (view[got:],), position + got)
        if not count:
            break
        got += count
    return got


def bring_in(fd: int, position: int, length: int) -> None:
    """Read a range into the page cache, and let the kernel start reading the bytes after it.

    For a lane. Raises OSError.
    """
    fadvise = getattr(os, "posix_fadvise", None)
    if fadvise is not None:
        fadvise(fd, position, length + AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
    buffer = bytearray(min(length, PIECE_BYTES))
    end = position + length
    while position < end:
        count = os.preadv(fd, [memoryview(buffer)[: end - position]], position)
        if not count:
            return  # the file was truncated; sending it will fail
        position += count
