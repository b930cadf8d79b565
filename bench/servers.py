"""The two servers as their users start them, and what the operating system says about them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.compat.targets import Apache, Ours, Target
from tools import peers

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
