"""Start a node's process: `python launch.py FOLDER WHAT COMMAND…`, a program of its own, run with `-S -E`.

It takes the node's lock, writes its process id and start time, and then executes COMMAND, which keeps the lock until
it ends. The starting program may die at any moment: the running process is recorded, and a second process cannot start
beside it. `processes` calls it. It imports the standard library only, because it runs before every start of a node.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys

LOCK = "lock"
RECORD = "process.json"
BUSY = 75
"""Exit code (EX_TEMPFAIL): another process has the lock."""


def started(pid: int) -> str:
    """The start time of a process, as a text that is unique for its process id; empty if it has ended.

    Raises OSError if that cannot be known now, for example without a free descriptor.
    """
    try:
        with open(f"/proc/{pid}/stat") as file:
            # The name in parentheses may contain anything. Then follow the state (3rd field) and the start in ticks
            # since boot (22nd field).
            words = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return _started_elsewhere(pid) if not os.path.exists("/proc/self/stat") else ""
    return "" if words[0] in "ZX" else f"{_boot()}/{words[19]}"


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def _started_elsewhere(pid: int) -> str:
    """The start time on systems without /proc, from `ps`."""
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603
    state, _, since = printed.partition(" ")
    return "" if state.startswith("Z") else since.strip()


def write(path: str, text: str) -> None:
    """Replace a file atomically."""
    beside = f"{path}.{os.getpid()}"
    with open(beside, "w") as file:
        file.write(text)
    os.replace(beside, path)


def main(arguments: list[str]) -> None:
    """Become COMMAND as the holder of the lock; exit with BUSY if another process holds it. WHAT is a JSON object."""
    folder, what, *command = arguments
    handle = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT, 0o644)
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.set_inheritable(handle, True)
        mine = {"pid": os.getpid(), "started": started(os.getpid()), "what": json.loads(what)}
        write(os.path.join(folder, RECORD), json.dumps(mine))
        os.execv(command[0], command)  # noqa: S606
    sys.exit(BUSY)


if __name__ == "__main__":
    main(sys.argv[1:])
