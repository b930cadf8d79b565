"""The time slice that the loop's thread asks for, as the kernel tells it."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from kraft_node.runtime import cpu_slice
from kraft_node.runtime.cpu_slice import ATTRIBUTES, CALLS, SIZE, SLICE_NS, shorten_slice

T = TypeVar("T")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in CALLS, reason="this system has no sched_setattr"
)


def _in_thread(work: Callable[[], T]) -> T:
    """What `work` returns in a thread of its own: the attributes belong to a thread."""
    got: list[T] = []
    thread = threading.Thread(target=lambda: got.append(work()))
    thread.start()
    thread.join()
    return got[0]


def _attributes() -> tuple[int, ...]:
    """(size, policy, flags, nice, priority, runtime, deadline, period) of the calling thread."""
    room = ctypes.create_string_buffer(SIZE)
    number = CALLS[platform.machine()] + 1
    assert ctypes.CDLL(None, use_errno=True).syscall(number, 0, room, SIZE, 0) == 0, ctypes.get_errno()
    return struct.unpack(ATTRIBUTES, room.raw)


def test_the_thread_has_short_slices_and_its_lanes_have_ordinary_ones() -> None:
    def loop() -> tuple[tuple[int, ...], bool, tuple[int, ...], tuple[int, ...]]:
        before = _attributes()
        return before, shorten_slice(), _attributes(), _in_thread(_attributes)

    before, is_taken, loop_has, lane_has = _in_thread(loop)
    if not before[5]:
        pytest.skip("this kernel has no slices of threads")
    assert is_taken
    assert loop_has[5] == SLICE_NS < before[5]
    assert lane_has[5] == before[5]
    assert (loop_has[1], loop_has[3]) == (lane_has[1], lane_has[3]) == (os.SCHED_OTHER, before[3])


def test_slices_change_again_and_zero_gives_back_the_ordinary_ones() -> None:
    def loop() -> list[int]:
        found = [_attributes()[5]]
        for wanted in (500_000, 0, SLICE_NS):
            assert shorten_slice(wanted)
            found.append(_attributes()[5])
        return found

    found = _in_thread(loop)
    if not found[0]:
        pytest.skip("this kernel has no slices of threads")
    assert found == [found[0], 500_000, found[0], SLICE_NS]


def test_the_priority_of_the_process_stays() -> None:
    program = (
        "import os; os.nice(7); from kraft_node.runtime.cpu_slice import shorten_slice; "
        "print(shorten_slice(), os.getpriority(os.PRIO_PROCESS, 0))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    # The tests themselves may run at a low priority, and 19 is the lowest.
    assert done.stdout.split() == ["True", str(min(19, os.getpriority(os.PRIO_PROCESS, 0) + 7))]


def test_lanes_keep_a_high_priority_of_the_process() -> None:
    program = (
        "import os, threading; os.setpriority(os.PRIO_PROCESS, 0, -3); "
        "from kraft_node.runtime.cpu_slice import shorten_slice; print(shorten_slice()); "
        "lane = threading.Thread(target=lambda: print(os.getpriority(os.PRIO_PROCESS, 0))); lane.start(); lane.join()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    if "PermissionError" in done.stderr:
        pytest.skip("this user may not raise priorities")
    assert done.stdout.split() == ["True", "-3"], done.stderr


def test_another_policy_of_an_administrator_stays() -> None:
    program = (
        "import os; os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)); "
        "from kraft_node.runtime.cpu_slice import shorten_slice; "
        "print(shorten_slice(), os.sched_getscheduler(0) == os.SCHED_BATCH)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "True"]


def test_a_refusal_is_logged_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cpu_slice, "RESET_ON_FORK", 1 << 40)  # a flag that no kernel knows
    caplog.set_level("INFO", logger=cpu_slice.__name__)
    before = _in_thread(_attributes)
    assert not _in_thread(shorten_slice)
    assert "keeps ordinary time slices" in caplog.text
    assert _in_thread(_attributes) == before


def test_a_c_library_without_the_policy_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """musl, of Alpine's images, has no sched_getscheduler(2): Python raises."""

    def unknown(_pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "sched_getscheduler", unknown)
    caplog.set_level("INFO", logger=cpu_slice.__name__)
    assert not shorten_slice()
    assert "error=ENOSYS" in caplog.text
