"""The machine, the programs and the load: the facts a reader needs to judge a run. No host or user names."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from tools import peers

ROOT = Path(__file__).parents[2]
GIB = 1 << 30
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
QUIET_LOAD = 0.3
"""A machine is quiet below this one-minute load average per core."""


def described(folder: Path) -> dict[str, Any]:
    """The environment in a run's header. `folder` holds the servers' data."""
    return {
        "cpu": f"{os.cpu_count()} x {_field('/proc/cpuinfo', 'model name') or platform.machine()}",
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB, 1),
        "virtual_machine": _is_virtual(),
        "kernel": f"{platform.system()} {platform.release()}",
        "disk": _disk(folder),
        "dirty_ratio": Path("/proc/sys/vm/dirty_ratio").read_text().strip(),
        "python": platform.python_version(),
        "java": _version("java", "-version"),
        "gcc": _version("gcc", "--version"),
        "etcd": _version("etcd", "--version"),
        "kafka": peers.VERSION,
        "packages": {name: _package(name) for name in ("confluent-kafka", "kafka-python", "cramjam", "fastcrc")},
        "commit": _git("rev-parse", "HEAD"),
        "trees": trees(),
        "load": load(),
        "was_quiet": is_quiet(),
    }


MEASURED = ("protocol/src", "node/src", "bench")


def trees() -> dict[str, str]:
    """The git trees that determine the figures: the protocol, the node and the bench."""
    return {name: _git("rev-parse", f"HEAD:{name}")[:12] for name in MEASURED}


def changed() -> list[str]:
    """Files of the protocol, the node or the bench that differ from the commit."""
    return [line.split(maxsplit=1)[1] for line in _git("status", "--porcelain", "--", *MEASURED).splitlines()]


def load() -> list[float]:
    """The load averages of 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def is_quiet() -> bool:
    """Whether the last minute's load leaves the cores to a measurement."""
    return os.getloadavg()[0] <= QUIET_LOAD * (os.cpu_count() or 1)


def others_cpu() -> Callable[[], float]:
    """Begin to count; the returned function returns the CPU seconds used since by other processes and the kernel.

    Own processes are those that this process started, including those still running.
    """
    before = _busy_s() - _own_s()
    return lambda: round(max(0.0, _busy_s() - _own_s() - before), 2)


def _busy_s() -> float:
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S


def _own_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + _living_s()


def _living_s() -> float:
    """CPU seconds of running children, including the seconds of their reaped children."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[1]) == os.getpid():
            ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS_PER_S


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().split("\n"):
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _disk(folder: Path) -> str:
    """File system, device class and mount options."""
    command = ["findmnt", "--noheadings", "--output", "FSTYPE,SOURCE,OPTIONS", "--target", str(folder)]
    if shutil.which(command[0]) is None:
        return "unknown"
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    if len(found) < 3:
        return "unknown"
    kind, source, options = found[:3]
    rotational = (Path("/sys/class/block") / Path(source).name).resolve() / "queue" / "rotational"
    spins = rotational.exists() and rotational.read_text().strip() == "1"
    # The host decides the reports of a virtual disk about itself.
    device = "a virtual disk" if _is_virtual() else "a rotating disk" if spins else "a solid state disk"
    return f"{kind} on {device}, {options}"


def _is_virtual() -> bool:
    return "hypervisor" in _field("/proc/cpuinfo", "flags")


def _version(program: str, option: str) -> str:
    """The first line of a program's output; empty if the program is missing."""
    if shutil.which(program) is None:
        return ""
    done = subprocess.run([program, option], capture_output=True, text=True, check=False, timeout=60)
    return (done.stdout or done.stderr).strip().split("\n")[0]


def _package(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _git(*args: str) -> str:
    done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def now() -> str:
    """The time in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
