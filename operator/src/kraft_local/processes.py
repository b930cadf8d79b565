"""Processes of nodes, identified by process id and start time, never by name. They outlive the supervisor.

Each node has a folder with its lock and `process.json`, which records the process and the aspects that it was started
with (`launch` writes both). `world` calls it. Tests replace it by a fake.
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

from kraft_local import launch

LAUNCH: Final = launch.__file__


@dataclass(frozen=True, slots=True)
class Process:
    """A process that was started in a folder."""

    pid: int
    started: str
    what: Mapping[str, str]
    alive: bool
    exit_code: int | None = None
    """Negative for a signal; None while it runs, and for a process that another supervisor started."""


class Processes:
    """Starts, observes and signals processes."""

    def __init__(self) -> None:
        self._children: dict[Path, subprocess.Popen[bytes]] = {}
        self._what: dict[Path, Mapping[str, str]] = {}

    def start(
        self, folder: Path, command: Sequence[str], what: Mapping[str, str], log: Path, env: Mapping[str, str]
    ) -> None:
        """Start `command`, unless a process runs in `folder` already. `what` is recorded with it."""
        folder.mkdir(parents=True, exist_ok=True)
        self._reap(folder)
        words = [sys.executable, "-S", "-E", LAUNCH, str(folder), json.dumps(dict(what)), *command]
        self._what[folder] = dict(what)
        with log.open("ab") as out:
            # In a session of its own: Ctrl-C goes to this program only, which stops its nodes in order.
            self._children[folder] = subprocess.Popen(  # noqa: S603  (ours)
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **env},
                start_new_session=True,
            )

    def look(self, folder: Path) -> Process | None:
        """The process that runs in a folder, or ran there last; None if no process ran, or if it was forgotten."""
        child = self._children.get(folder)
        code = child.poll() if child is not None else None
        if code == launch.BUSY:
            del self._children[folder]  # a process that an earlier supervisor started runs there
            child = code = None
        process = _read(folder / launch.RECORD)
        if child is not None and (process is None or process.pid != child.pid):
            # The child is about to write its record, or ended before: the record is from an earlier process.
            return Process(child.pid, "", self._what[folder], alive=code is None, exit_code=code)
        if process is None:
            return None
        alive = child is None or code is None
        alive = alive and launch.started(process.pid) == process.started
        return Process(process.pid, process.started, process.what, alive, code)

    def rewrite(self, folder: Path, aspects: Mapping[str, str]) -> None:
        """Change aspects in the record of the process that runs in a folder."""
        process = self.look(folder)
        if process is None or not process.alive or not process.started:
            return
        what = {**process.what, **aspects}
        mine = {"pid": process.pid, "started": process.started, "what": what}
        launch.write(str(folder / launch.RECORD), json.dumps(mine))
        self._what[folder] = what

    def signal(self, folder: Path, number: int) -> bool:
        """Send a signal to the process in a folder. Returns whether it was sent."""
        process = self.look(folder)
        return process is not None and process.alive and send(process.pid, process.started, number)

    def forget(self, folder: Path) -> None:
        """Remove the record of an ended process, so that `look` no longer returns it."""
        self._reap(folder)
        (folder / launch.RECORD).unlink(missing_ok=True)

    def _reap(self, folder: Path) -> None:
        child = self._children.pop(folder, None)
        if child is not None:
            child.wait()


def send(pid: int, started: str, number: int) -> bool:
    """Signal a process if its start time is still `started`. Returns whether the signal was sent."""
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
        # The handle refers to the present process of this id. If the start time matches, it stays the right process.
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
    """A file lock that one process holds at a time, until it ends. The file names the holder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def take(self) -> bool:
        """Take the lock. Returns False if another process holds it."""
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
        """Release the lock; harmless if it is not held."""
        if self._handle is not None:
            os.ftruncate(self._handle, 0)
            os.close(self._handle)
            self._handle = None

    def holder(self) -> tuple[int, str] | None:
        """Process id and start time of the holder; None if no living process holds it."""
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
            found = json.loads(self.path.read_text())
            if launch.started(found["pid"]) == found["started"]:
                return found["pid"], found["started"]
        return None
