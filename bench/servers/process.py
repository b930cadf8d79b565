"""A server's CPU time and memory, from the operating system and the JVM; and how to warm free memory."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import time
from pathlib import Path

from tests.compat.targets import Apache, Target

MIB = 1 << 20
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
JDK_TIMEOUT_S = 120
SETTLE_S = 0.3


def cpu_s(*targets: Target) -> float:
    """Processor seconds that the servers have used, user and system, all threads."""
    total = 0
    for target in targets:
        fields = Path(f"/proc/{pid(target)}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS_PER_S


def rss_mib(*targets: Target) -> float:
    """Resident memory of the servers in MiB."""
    return sum(_status(target, "VmRSS") for target in targets)


def live_mib(*targets: Target) -> float:
    """The live set of the servers in MiB: memory that they could not give back.

    For Kafka: used heap after a full collection, and used metaspace. For ours: resident anonymous memory. That includes
    memory that Python's allocator has freed but not returned, so our figure is rather too high.
    """
    return sum(_jvm_live(target) if isinstance(target, Apache) else _status(target, "RssAnon") for target in targets)


def _jvm_live(target: Target) -> float:
    """Uses jcmd and jstat. GC.class_histogram collects fully first, even if explicit collections are concurrent."""
    assert shutil.which("jcmd") and shutil.which("jstat"), "jcmd or jstat is not in PATH: install a JDK"
    number = str(pid(target))
    subprocess.run(["jcmd", number, "GC.class_histogram"], capture_output=True, check=True, timeout=JDK_TIMEOUT_S)
    done = subprocess.run(
        ["jstat", "-gc", number], capture_output=True, text=True, check=True, timeout=JDK_TIMEOUT_S
    ).stdout.split("\n")
    found = dict(zip(done[0].split(), done[1].split(), strict=True))
    return sum(float(found[name]) for name in ("S0U", "S1U", "EU", "OU", "MU")) / 1024


def _status(target: Target, name: str) -> float:
    for line in Path(f"/proc/{pid(target)}/status").read_text().split("\n"):
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {name}")


def pid(target: Target) -> int:
    """The process id of a running server. Raises AssertionError if it does not run."""
    assert target.process is not None, f"{target.name} does not run"
    assert target.process.poll() is None, f"{target.name} has ended:\n{target.tail()}"
    return target.process.pid


def settle() -> None:
    """Let the kernel write back earlier data, so that a measurement does not pay for it."""
    os.sync()
    time.sleep(SETTLE_S)


def warm_memory(size: int) -> None:
    """Make the hypervisor back as much free memory as the next burst needs.

    Many virtual machines return free memory to their host and get it back page by page, at a fraction of a GB/s. That
    would slow a server that fills the page cache. Touching the pages first brings them back.
    """
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)).close()
