"""Real processes: identified by number and start time, one for each folder; they outlive their parent."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraft_local import launch
from kraft_local.processes import Lock, Process, Processes, send

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
PATIENCE_S = 60.0


def wait_for(what: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def _ended(processes: Processes, folder: Path) -> bool:
    """Whether it has ended, by us or before; a process that has not written its name yet cannot be signalled."""
    processes.signal(folder, signal.SIGKILL)
    found = processes.look(folder)
    return found is None or not found.alive


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes()
    yield made
    for folder in tmp_path.iterdir():
        if folder.is_dir():
            wait_for(lambda f=folder: _ended(made, f))
            made.forget(folder)


def _started(processes: Processes, folder: Path, command: list[str] = SLEEP) -> Process:
    processes.start(folder, command, {"roles": "broker"}, folder.parent / "log", {"MARK": "1"})
    wait_for(lambda: (found := processes.look(folder)) is not None and (found.started or not found.alive))
    found = processes.look(folder)
    assert found is not None
    return found


def test_a_running_process_is_found_with_its_description(processes: Processes, tmp_path: Path) -> None:
    assert processes.look(tmp_path / "a") is None
    process = _started(processes, tmp_path / "a")
    assert process.alive
    assert process.what == {"roles": "broker"}
    assert launch.started(process.pid) == process.started


def test_rewritten_aspects_outlive_the_supervisor(processes: Processes, tmp_path: Path) -> None:
    process = _started(processes, tmp_path / "a")
    processes.rewrite(tmp_path / "a", {"config": "new"})
    for reader in (processes, Processes()):
        found = reader.look(tmp_path / "a")
        assert found is not None and found.alive
        assert (found.pid, found.what) == (process.pid, {"roles": "broker", "config": "new"})
    assert processes.signal(tmp_path / "a", signal.SIGTERM)
    wait_for(lambda: processes.look(tmp_path / "a").exit_code == -signal.SIGTERM)  # type: ignore[union-attr]
    assert not processes.signal(tmp_path / "a", signal.SIGTERM)
    processes.forget(tmp_path / "a")
    assert processes.look(tmp_path / "a") is None


def test_a_process_is_described_before_it_has_written_its_file(processes: Processes, tmp_path: Path) -> None:
    processes.start(tmp_path / "a", SLEEP, {"roles": "broker"}, tmp_path / "log", {})
    for _ in range(50):
        found = processes.look(tmp_path / "a")
        assert found is not None
        assert found.alive
        assert found.what == {"roles": "broker"}, "the planner would restart a node that lacks everything"
        time.sleep(0.002)


def test_a_later_supervisor_finds_the_process(processes: Processes, tmp_path: Path) -> None:
    process = _started(processes, tmp_path / "a")
    later = Processes()
    found = later.look(tmp_path / "a")
    assert found is not None
    assert (found.pid, found.alive) == (process.pid, True)
    later.start(tmp_path / "a", SLEEP, {"roles": "other"}, tmp_path / "log", {})
    wait_for(lambda: later._children[tmp_path / "a"].poll() is not None)
    found = later.look(tmp_path / "a")
    assert found is not None
    assert (found.pid, found.what) == (process.pid, {"roles": "broker"})


def test_an_ended_process_has_an_exit_code_and_a_last_line(processes: Processes, tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-c", "import os, sys; print(os.environ['MARK']); sys.exit(7)"]
    processes.start(tmp_path / "a", command, {}, tmp_path / "log", {"MARK": "marked"})
    wait_for(lambda: (found := processes.look(tmp_path / "a")) is not None and found.exit_code is not None)
    found = processes.look(tmp_path / "a")
    assert found is not None
    assert (found.alive, found.exit_code) == (False, 7)
    assert (tmp_path / "log").read_text() == "marked\n"


def test_a_reused_process_id_is_not_signalled() -> None:
    with subprocess.Popen(SLEEP) as process:
        assert not send(process.pid, "another/1", signal.SIGKILL)
        assert process.poll() is None
        assert send(process.pid, launch.started(process.pid), signal.SIGKILL)
        process.wait(PATIENCE_S)
    assert launch.started(process.pid) == ""
    assert not send(process.pid, "", signal.SIGKILL)


def test_a_lock_has_one_holder_until_it_is_released(tmp_path: Path) -> None:
    lock, other = Lock(tmp_path / "deep" / "lock"), Lock(tmp_path / "deep" / "lock")
    assert lock.holder() is None
    assert lock.take()
    assert not other.take()
    holder = other.holder()
    assert holder is not None
    assert holder[0] == os.getpid()
    lock.release()
    assert other.holder() is None
    assert other.take()
    other.release()


def test_a_process_that_cannot_be_examined_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a free descriptor a running node counted as ended, and the supervisor waited for its end forever."""

    def none_free(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr("builtins.open", none_free)
    with pytest.raises(OSError, match="too many open files"):
        launch.started(os.getpid())
