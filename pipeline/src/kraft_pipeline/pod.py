"""What the container of this process may use, and Spark's settings that fit it.

A limit of memory ends the whole pod, so the number of concurrent tasks follows the memory as well as the processors. On
a machine of 64 cores a pod of 2 GiB would otherwise start 64 Python workers.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final, NamedTuple

CGROUP: Final = Path("/sys/fs/cgroup")
NO_LIMIT: Final = 1 << 60
"""cgroups of version 1 have a number above this if memory is not limited."""
JAVA_MIB: Final = 512
"""MiB for the JVM, about Spark's minimum: records are in Python's memory."""
JAVA_MIB_MAX: Final = 4096
BESIDE_MIB: Final = 512
"""MiB for the driver's Python, and for the JVM beside its heap."""
TASK_MIB: Final = 384
"""MiB of a Python worker: two files' rows, the fetched batches, and its libraries."""
TRIES: Final = 4
"""Attempts of a task. With one try, as `local[*]` has it, a Python worker that is killed would end the batch."""
BATCH_BYTES: Final = 1 << 30
"""Most bytes of a batch of a table, unless its specification has `maxBytes`."""
BATCH_SHARE: Final = 4
"""The memory divided by this is the most for the bytes of a batch: libraries copy rows while they merge them."""


class Limits(NamedTuple):
    """Limits of the container; None where it has none."""

    processors: float | None
    memory: int | None
    """Bytes."""


def limits(root: Path = CGROUP) -> Limits:
    """Read the limits from the container's cgroup, of version 2 or 1."""
    quota, period = [*_words(root / "cpu.max"), "max", "max"][:2]
    if quota == "max":
        quota = _words(root / "cpu" / "cpu.cfs_quota_us", "max")[0]
        period = _words(root / "cpu" / "cpu.cfs_period_us", "max")[0]
    processors = int(quota) / int(period) if _is_number(quota) and _is_number(period) else None
    words = _words(root / "memory.max") or _words(root / "memory" / "memory.limit_in_bytes")
    memory = int(words[0]) if words and _is_number(words[0]) else None
    return Limits(processors, None if memory is None or memory >= NO_LIMIT else memory)


def _words(path: Path, *otherwise: str) -> list[str]:
    try:
        return path.read_text().split() or list(otherwise)
    except OSError:
        return list(otherwise)


def _is_number(text: str) -> bool:
    return text.isdecimal() and int(text) > 0  # -1 means no quota


def batch_bytes(found: Limits | None = None) -> int:
    """Default for the uncompressed bytes of a batch of a table, by the memory of this process's container."""
    memory = (limits() if found is None else found).memory
    return BATCH_BYTES if memory is None else min(BATCH_BYTES, max(1, memory // BATCH_SHARE))


def spark_settings(found: Limits | None = None, cores: int | None = None) -> dict[str, str]:
    """`spark.master`, and the memory of the JVM if memory is limited, for Spark within this process's container.

    `cores`: the cores of the machine that this process may use.
    """
    found = limits() if found is None else found
    if found.memory is None:  # the JVM itself knows the limit of processors
        return {"spark.master": f"local[*,{TRIES}]"}
    cores = cores or os.cpu_count() or 1
    if found.processors is not None:
        cores = min(cores, math.ceil(found.processors))
    mib = found.memory >> 20
    java = min(JAVA_MIB_MAX, max(JAVA_MIB, mib // 4))
    tasks = max(1, min(cores, (mib - java - BESIDE_MIB) // TASK_MIB))
    return {"spark.master": f"local[{tasks},{TRIES}]", "spark.driver.memory": f"{java}m"}
