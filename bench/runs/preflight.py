"""The requirements of a run, checked before its start: a run of hours must not fail because a program is missing."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Sequence
from pathlib import Path

from bench.clients import load
from bench.runs.environment import GIB
from bench.runs.row import Scenario
from bench.servers.server import SERVERS

PROGRAMS = ("java", "jcmd", "jstat", "gcc", "sync")
DISK_GIB = 25
"""For the cold log, and the files that other steps keep until the run ends."""
MEMORY_GIB = 14
"""For six Kafkas with a heap of 1 GiB, the page cache of their data, and the clients."""
OPEN_FILES = 15_000
"""For Kafka with 10,000 partitions."""


def problems(folder: Path) -> list[str]:
    """Why a run would fail here."""
    found = [f"{name} is not in PATH" for name in PROGRAMS if shutil.which(name) is None]
    try:
        load.librdkafka()
    except (AssertionError, ImportError) as error:
        found.append(str(error))
    free = shutil.disk_usage(folder).free / GIB
    if free < DISK_GIB:
        found.append(f"{folder} has {free:.0f} GiB free, a run needs {DISK_GIB}; give another folder with --folder")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB
    if memory < MEMORY_GIB:
        found.append(f"the machine has {memory:.0f} GiB of memory, a run needs {MEMORY_GIB}")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < OPEN_FILES:
        found.append(f"the hard limit of open files is {hard}, a run needs {OPEN_FILES}: ulimit -Hn")
    return found


def skipped(scenarios: Sequence[Scenario]) -> list[str]:
    """The servers with steps that will be skipped here, and why; the run continues without them."""
    reasons = {name: SERVERS[name].missing() for scenario in scenarios for name in scenario.servers}
    return [f"{name}: {why}" for name, why in reasons.items() if why]


def raise_open_files() -> None:
    """Allow this process and its children as many open files as the hard limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
