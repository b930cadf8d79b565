"""Lanes of background work."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from kraft_node.runtime.background import SWITCH_S, ThreadBackground
from kraft_node.runtime.loop import Loop


def test_a_lane_whose_thread_could_not_start_starts_with_the_next_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its jobs were queued for a thread that never ran: fsyncs of a directory, for one, never ended."""
    loop = Loop()
    background = ThreadBackground(loop)
    start = threading.Thread.start
    failures = [RuntimeError("can't start new thread")]

    def fail_once(thread: threading.Thread) -> None:
        if failures:
            raise failures.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_once)
    got: list[Any] = []
    with pytest.raises(RuntimeError, match="can't start"):
        background.submit("disk", lambda: 1, got.append)

    def done(result: Any) -> None:
        got.append(result)
        loop.stop()

    background.submit("disk", lambda: 2, done)
    loop.call_later(10_000, loop.stop)
    loop.run()
    assert got == [2]
    background.close(5)
    loop.close()


def test_the_loop_does_not_wait_long_for_the_interpreter() -> None:
    """With Python's default, each request waited for 5 ms and more while a lane ran Python."""
    sys.setswitchinterval(0.005)
    loop = Loop()
    ThreadBackground(loop)
    assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    loop.close()
