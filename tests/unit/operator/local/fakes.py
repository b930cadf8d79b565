"""Simulated processes. Fault model: they end on command, by themselves, or never."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kraft_local.processes import Process


@dataclass
class Run:
    command: list[str]
    what: Mapping[str, str]
    pid: int
    alive: bool = True
    exit_code: int | None = None
    deaf: bool = False
    """Does not end when it is asked to."""
    asked: int = 0


class FakeProcesses:
    """`processes.Processes` without real processes."""

    def __init__(self) -> None:
        self.runs: dict[Path, Run] = {}
        self.next_pid = 1000
        self.started: list[str] = []

    def start(
        self, folder: Path, command: list[str], what: Mapping[str, str], log: Path, env: Mapping[str, str]
    ) -> None:
        del log, env
        folder.mkdir(parents=True, exist_ok=True)
        assert folder not in self.runs or not self.runs[folder].alive, f"a second one in {folder}"
        self.next_pid += 1
        self.runs[folder] = Run(list(command), dict(what), self.next_pid)
        self.started.append(folder.name)

    def look(self, folder: Path) -> Process | None:
        run = self.runs.get(folder)
        # As if all had started within the same 10 ms, the resolution of a start time.
        return None if run is None else Process(run.pid, "boot/7", run.what, run.alive, run.exit_code)

    def rewrite(self, folder: Path, aspects: Mapping[str, str]) -> None:
        self.runs[folder].what = {**self.runs[folder].what, **aspects}

    def signal(self, folder: Path, number: int) -> bool:
        run = self.runs.get(folder)
        if run is None or not run.alive:
            return False
        run.asked += number == signal.SIGTERM
        if number == signal.SIGKILL or not run.deaf:
            self.end(folder, 0 if number == signal.SIGTERM else -number)
        return True

    def forget(self, folder: Path) -> None:
        assert folder not in self.runs or not self.runs[folder].alive
        self.runs.pop(folder, None)

    def end(self, folder: Path, code: int | None) -> None:
        self.runs[folder].alive = False
        self.runs[folder].exit_code = code
