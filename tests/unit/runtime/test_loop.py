"""The loop: order, timers, calls from threads, and failures that must not end it."""

from __future__ import annotations

import os
import threading
import time

import pytest

from kraft_node.runtime.env import RealEnv, RealRng
from kraft_node.runtime.loop import CANCELLED_MAX, READABLE, Loop


def run(loop: Loop, limit_ms: int = 5_000) -> None:
    loop.call_later(limit_ms, loop.stop)
    loop.run()


def test_calls_run_in_order_and_timers_by_time() -> None:
    begun = time.monotonic()
    loop = Loop()
    seen: list[str] = []
    loop.call_later(30, seen.append, "late")
    loop.call_later(30, loop.stop)
    loop.call_later(5, seen.append, "early")
    loop.call_soon(seen.append, "first")
    loop.call_soon(lambda: loop.call_soon(seen.append, "third"))
    loop.call_soon(seen.append, "second")
    loop.run()
    assert seen == ["first", "second", "third", "early", "late"]
    assert time.monotonic() - begun >= 0.03
    loop.close()


def test_cancelled_calls_do_not_run_and_do_not_pile_up() -> None:
    loop = Loop()
    seen: list[int] = []
    for i in range(10 * CANCELLED_MAX):
        loop.call_later(60_000, seen.append, i).cancel()
    assert len(loop._heap) <= 2 * CANCELLED_MAX
    loop.call_soon(seen.append, 1).cancel()
    kept = loop.call_later(1, seen.append, 2)
    loop.call_later(5, loop.stop)
    loop.run()
    kept.cancel()  # no effect afterwards
    assert seen == [2]
    loop.close()


def test_a_failing_callback_is_logged_and_the_loop_continues(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    read, write = os.pipe()

    def bad(_events: int) -> None:
        os.read(read, 1)
        raise RuntimeError("descriptor trouble")

    loop.watch(read, READABLE, bad)
    os.write(write, b"x")
    loop.call_soon(lambda: 1 / 0)
    loop.call_later(10, loop.stop)
    loop.run()
    assert "descriptor trouble" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    loop.unwatch(read)
    loop.close()
    os.close(read)
    os.close(write)


def test_calls_from_threads_wake_the_loop() -> None:
    loop = Loop()
    seen: list[int] = []

    def work() -> None:
        for i in range(1000):
            loop.call_from_thread(seen.append, i)
        loop.call_from_thread(loop.stop)

    thread = threading.Thread(target=work)
    thread.start()
    begun = time.monotonic()
    run(loop)
    thread.join()
    assert seen == list(range(1000))
    assert time.monotonic() - begun < 4
    loop.close()


def test_background_lanes_keep_order_and_hand_back_errors() -> None:
    real = RealEnv()
    seen: list[object] = []
    for i in range(50):
        real.background.submit("a", lambda i=i: i, seen.append)  # type: ignore[misc]
    real.background.submit("a", lambda: 1 // 0, seen.append)
    real.background.submit("a", threading.get_ident, lambda ident: seen.append(ident != threading.get_ident()))
    real.background.submit("a", lambda: None, lambda _: real.loop.stop())
    run(real.loop)
    real.close()
    assert seen[:50] == list(range(50))
    assert isinstance(seen[50], ZeroDivisionError)
    assert seen[51] is True


def test_random_numbers_stay_within_their_bound() -> None:
    rng = RealRng()
    assert {rng.randrange(3) for _ in range(200)} == {0, 1, 2}
    assert len(rng.random_bytes(16)) == 16
    with pytest.raises(ValueError, match="positive"):
        rng.randrange(0)
