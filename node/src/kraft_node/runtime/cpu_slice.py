"""The time slice of the loop's thread: how soon Linux runs the loop when others use the processors.

Linux's scheduler (EEVDF) runs the thread with the earliest deadline, which is nearer the shorter a thread's slice is.
The loop works for less than a millisecond at a time, so it asks for short slices. It then waits for a busy processor a
sixth as long, and gets no larger share of it. Threads that it starts get ordinary slices: lanes may work for long.
Linux before 6.12 takes the request and ignores it. Measured: decision 27.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from typing import Final

log = logging.getLogger("kraft_node.runtime.cpu_slice")

SLICE_NS: Final = 200_000
"""Linux's own is 0.7 to 2.8 ms, by the number of processors. The loop waits as long with 0.1 ms as with 0.2 ms, but
exchanges the processor more often."""

CALLS: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274, "s390x": 345, "ppc64le": 355}
"""The number of sched_setattr(2), which the C library did not have before glibc 2.41. sched_getattr(2) is the next."""

RESET_ON_FORK: Final = 1
"""The flag of sched_setattr(2); `os.SCHED_RESET_ON_FORK` is that of sched_getscheduler(2)."""
ATTRIBUTES: Final = "=IIQiIQQQ"
"""struct sched_attr in its first version: size, policy, flags, nice, priority, runtime, deadline, period."""
SIZE: Final = 48


def shorten_slice(slice_ns: int = SLICE_NS) -> bool:
    """Ask for short slices for the calling thread. 0: Linux's own slices.

    Threads that it starts later have Linux's own, unless the process has a higher priority than usual: they keep it,
    and the slices. Returns whether the system took the request. It is not made if an administrator has given the
    process another scheduling policy.
    """
    number = CALLS.get(os.uname().machine) if sys.platform == "linux" else None
    if number is None:
        return False
    try:
        policy = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
    except OSError as e:  # musl does not answer
        return _refused(e.errno)
    if policy != os.SCHED_OTHER:
        return False
    import ctypes  # noqa: PLC0415  (two milliseconds that a start does not need to wait for)
    import struct  # noqa: PLC0415

    nice = os.getpriority(os.PRIO_PROCESS, 0)
    flags = RESET_ON_FORK if nice >= 0 else 0  # it would also take a high priority from the threads started later
    wanted = struct.pack(ATTRIBUTES, SIZE, os.SCHED_OTHER, flags, nice, 0, slice_ns, 0, 0)
    if ctypes.CDLL(None, use_errno=True).syscall(number, 0, wanted, 0) == 0:
        return True
    return _refused(ctypes.get_errno())


def _refused(reason: int | None) -> bool:
    log.info("the loop keeps ordinary time slices error=%s", errno.errorcode.get(reason or 0, reason))
    return False
