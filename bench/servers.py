"""The two servers as their users start them, and what the operating system says about them."""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import subprocess
from pathlib import Path

from tests.compat.targets import Apache, Ours, Target
from tools import peers

STOP_TIMEOUT_S = 180.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class TunedApache(Apache):
    """Apache Kafka with the JVM options of its own start script (1 GiB heap, G1)."""

    def _command(self, program: str, *args: str) -> list[str]:
        main = {"storage": "kafka.tools.StorageTool", "server": "kafka.Kafka"}[program]
        options = (
            *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
            *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
            f"-Dlog4j2.configurationFile={self._log4j()}",
        )
        return peers.java_command(main, *args, options=options)


SERVERS: dict[str, type[Target]] = {"ours": Ours, "kafka": TunedApache}


def fresh(name: str, folder: Path, **overrides: str) -> Target:
    """A formatted, not yet started server with an empty data directory."""
    shutil.rmtree(folder, ignore_errors=True)
    target = SERVERS[name](name, folder, overrides)
    target.format()
    return target


def spawn(target: Target) -> subprocess.Popen[bytes]:
    """Start the process without waiting for anything."""
    with target.log.open("ab") as log:
        target.process = subprocess.Popen(
            target._command("server", str(target.properties())), stdout=log, stderr=log, env=target._env()
        )
    return target.process


def stop(target: Target) -> None:
    """A clean stop, with more patience than tests have: after 10,000 topics it may take a while."""
    process, target.process = target.process, None
    assert process is not None
    process.send_signal(signal.SIGTERM)
    process.wait(STOP_TIMEOUT_S)


def warm_memory(size: int) -> None:
    """Have the hypervisor back as much free memory as the next burst takes.

    Many virtual machines give free memory back to their host and get it again page by page, at a fraction of a GB/s: a
    server that fills the page cache would be measured by that. Touched just now, the pages are there.
    """
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)).close()


def cpu_s(process: subprocess.Popen[bytes]) -> float:
    """Processor seconds that the process has used, in and for it."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_mib(process: subprocess.Popen[bytes]) -> float:
    """Resident memory in MiB."""
    for line in Path(f"/proc/{process.pid}/status").read_text().split("\n"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")
