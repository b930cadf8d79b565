"""Processes of nodes, known by number and start, never by name. They outlive whoever started them.

A folder a node: its lock, and `process.json` with who runs and what it was started with (`launch` writes both). Who
calls it: `world`. This is the boundary that tests put a fake at.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kraft_operator.apply.local import launch

LAUNCH: Final = launch.__file__


@dataclass(frozen=True, slots=True)
class Process:
    """One that was started in a folder."""

    pid: int
    started: str
    what: Mapping[str, str]
    alive: bool
    exit_code: int | None = None
    """Negative for a signal; None while it runs, and for one that somebody else had started."""


class Processes:
    """Starts, sees and signals."""

    def __init__(self) -> None:
        self._children: dict[Path, subprocess.Popen[bytes]] = {}
        self._what: dict[Path, Mapping[str, str]] = {}

    def start(
        self, folder: Path, command: Sequence[str], what: Mapping[str, str], log: Path, env: Mapping[str, str]
    ) -> None:
        """Start `command`, unless something runs in `folder` already. `what` is remembered with it."""
        folder.mkdir(parents=True, exist_ok=True)
        self._reap(folder)
        words = [sys.executable, "-S", "-E", LAUNCH, str(folder), json.dumps(dict(what)), *command]
        self._what[folder] = dict(what)
        with log.open("ab") as out:
            # In a session of its own: a Ctrl-C is for this program, which stops its nodes in their order.
            self._children[folder] = subprocess.Popen(  # noqa: S603  (ours)
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **env},
                start_new_session=True,
            )

    def look(self, folder: Path) -> Process | None:
        """What runs there, or ran last; None if nothing has been started, or what was has been forgotten."""
        child = self._children.get(folder)
        code = child.poll() if child is not None else None
        if code == launch.BUSY:
            del self._children[folder]  # one that an earlier supervisor has started runs there
            child = code = None
        process = _read(folder / launch.RECORD)
        if child is not None and (process is None or process.pid != child.pid):
            # It is about to write its name, or has ended before: whatever is on record is of an earlier one.
            return Process(child.pid, "", self._what[folder], alive=code is None, exit_code=code)
        if process is None:
            return None
        alive = child is None or code is None
        alive = alive and launch.started(process.pid) == process.started
        return Process(process.pid, process.started, process.what, alive, code)

    def signal(self, folder: Path, number: int) -> bool:
        """Send a signal to what runs there; whether something did."""
        process = self.look(folder)
        return process is not None and process.alive and send(process.pid, process.started, number)

    def forget(self, folder: Path) -> None:
        """What had run there has ended, and is seen no more."""
        self._reap(folder)
        (folder / launch.RECORD).unlink(missing_ok=True)

    def _reap(self, folder: Path) -> None:
        child = self._children.pop(folder, None)
        if child is not None:
            child.wait()


def send(pid: int, started: str, number: int) -> bool:
    """Signal a process if it is still the one that had `started`; whether it was."""
    if not hasattr(os, "pidfd_open"):
        if not started or launch.started(pid) != started:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
        return False
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # The handle is of whoever has the number now: if that is the right one, it stays so.
        if not started or launch.started(pid) != started:
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def _read(path: Path) -> Process | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return Process(found["pid"], found["started"], found["what"], alive=False)


class Lock:
    """Held by one process at a time, until it ends. Its file tells who holds it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def take(self) -> bool:
        """Whether nobody else has it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        self._handle = handle
        mine = json.dumps({"pid": os.getpid(), "started": launch.started(os.getpid())})
        os.ftruncate(handle, 0)
        os.pwrite(handle, mine.encode(), 0)
        return True

    def release(self) -> None:
        if self._handle is not None:
            os.ftruncate(self._handle, 0)
            os.close(self._handle)
            self._handle = None

    def holder(self) -> tuple[int, str] | None:
        """Number and start of whoever has it."""
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
            found = json.loads(self.path.read_text())
            if launch.started(found["pid"]) == found["started"]:
                return found["pid"], found["started"]
        return None
