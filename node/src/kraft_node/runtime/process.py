"""Metrics of the process, as in Prometheus' client libraries: memory, CPU time, open files, start time."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable, Iterator
from typing import TypeAlias

Family: TypeAlias = "tuple[str, str, Iterable[tuple[tuple[tuple[str, str], ...], float]]]"
"""As `server.monitoring.metrics.Family`."""


class ProcessMetrics:
    """Reads /proc on each scrape.

    Without /proc (macOS), only CPU time, start time and the limit of files are reported.
    """

    def __init__(self, proc: str = "/proc/self") -> None:
        self._proc = proc
        self._started_s = time.time()

    def collect(self) -> Iterator[Family]:
        """The family of process_* metrics, in seconds and bytes."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        yield _one("process_cpu_seconds_total", used.ru_utime + used.ru_stime, "counter")
        yield _one("process_start_time_seconds", self._started_s)
        yield _one("process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        try:
            with open(f"{self._proc}/statm", encoding="ascii") as file:
                virtual, resident = file.read().split()[:2]
            files = len(os.listdir(f"{self._proc}/fd"))
        except (OSError, ValueError):
            return
        page = resource.getpagesize()
        yield _one("process_virtual_memory_bytes", int(virtual) * page)
        yield _one("process_resident_memory_bytes", int(resident) * page)
        yield _one("process_open_fds", files)


def _one(name: str, value: float, kind: str = "gauge") -> Family:
    return name, kind, (((), float(value)),)
