"""Whether bytes of a file are in the page cache, and how a lane reads them into it.

sendfile of bytes that are not in memory waits for the disk and blocks the whole loop. So the loop checks first: a read
with RWF_NOWAIT fails at once if it would have to wait.
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
"""Bytes that the kernel is asked to read ahead beyond a range, so that most of the next range is in memory."""

_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
_UNSUPPORTED: Final = (errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)
_byte = bytearray(1)
_buffers = [_byte]


def is_resident(fd: int, position: int, length: int) -> bool:
    """Whether a range is in the page cache, checked by samples. True if the system or the file system cannot tell."""
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
