"""A program on Spark, such as `kraft-pipeline table run`, as a process whose child processes can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tests.spark import QUICK

ROOT: Final = Path(__file__).parents[1]
VICTIMS: Final = {
    "executor": "CoarseGrainedExecutorBackend",
    "worker": "pyspark.daemon",
    "source": "python_streaming_source_runner",
    "jvm": "SparkSubmit",
}
"""Kind of a process -> what its command line has."""
CLUSTER: Final = {
    **{name: value for name, value in QUICK.items() if not name.startswith("spark.sql.session")},
    "spark.master": "local-cluster[2,1,512]",
    "spark.driver.memory": "640m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.executor.maxNumFailures": "1000000",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "8",
}
"""Settings of Spark with two executors as processes of this machine."""
PROGRAM: Final = ("kraft_pipeline.cli.main", "--debug", "table", "run")
SPECULATION: Final = {
    "spark.default.parallelism": "4",
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.4",
    "spark.speculation.minTaskRuntime": "20ms",
}
"""Spark runs the slower half of all tasks twice."""


class SparkRun:
    """The process, its output lines, and its child processes. All of them end with the block."""

    def __init__(self, file: Path, *more: str, program: Sequence[str] = PROGRAM) -> None:
        """`program`: the module, and arguments before `file`; it prints a line that begins with "batch " for each."""
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", *program, str(file), *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=file.parent,
            env={
                **os.environ,
                "PYTHONUNBUFFERED": "1",
                "SPARK_LOCAL_DIRS": str(file.parent / "spark"),
                "PYTHONPATH": os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
            },
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._seen: set[tuple[int, str]] = set()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())

    @property
    def batches(self) -> int:
        """The batches that it reported."""
        return sum(line.startswith("batch ") for line in self.lines)

    @property
    def status(self) -> int | None:
        """The exit code; None while the process runs."""
        return self._process.poll()

    def until(self, batches: int, wait_s: float = 900.0) -> None:
        """Wait until it has reported that many batches, or has ended."""
        deadline = time.monotonic() + wait_s
        while self.batches < batches and self.status is None:
            assert time.monotonic() < deadline, "\n".join(self.lines[-40:])
            time.sleep(0.01)

    def wait(self, wait_s: float = 900.0) -> int:
        """Wait for the end; returns the exit code."""
        try:
            found = self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            raise AssertionError("\n".join(self.lines[-60:])) from None
        self._reader.join(10)
        return found

    def stop(self) -> None:
        """Stop as the operator does: the current batch completes."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self, kind: str, choice: Any) -> bool:
        """Kill one process of that kind, `driver` or of `VICTIMS`; returns whether one existed."""
        below = self._below()
        found = (
            [self._process.pid] if kind == "driver" else [pid for pid, text in below.items() if VICTIMS[kind] in text]
        )
        if not found or self.status is not None:
            return False
        return _killed(choice(sorted(found)))

    def _below(self) -> dict[int, str]:
        """Its descendants and their command lines; Spark puts executors and workers into their own process groups."""
        parents: dict[int, int] = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                except (OSError, IndexError):
                    continue
        found = {}
        for pid in parents:
            at = pid
            while at in parents and at != self._process.pid:
                at = parents[at]
            if at == self._process.pid and pid != at:
                try:
                    found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue
        self._seen |= set(found.items())
        return found

    def __enter__(self) -> SparkRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._below()
        if self.status is None:
            self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._reader.join(30)
        self._process.stdout.close()
        deadline = time.monotonic() + 30
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for pid in left:
            _killed(pid)

    def _left(self) -> list[int]:
        """The processes seen below it that still run."""
        found = []
        for pid, text in self._seen:
            try:
                now = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if now == text:
                found.append(pid)
        return found


def _killed(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
