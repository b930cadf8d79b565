"""The loop's lag: every turn is counted, and slow callbacks are named. Each test sets the bound below any duration."""

from __future__ import annotations

import os
from functools import partial

import pytest

from kraft_node.base.lag import LoopLag, name_of
from kraft_node.base.turns import Turns
from kraft_node.runtime import loop as loop_module
from kraft_node.runtime.env import RealEnv
from kraft_node.runtime.loop import READABLE, Loop


@pytest.fixture
def slow_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "SLOW_S", -1.0)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "event loop stalled" in record.getMessage()]


def test_a_quick_callback_gets_no_line_and_its_turn_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    loop.call_soon(loop.stop)
    loop.run()
    assert loop.lag.count == 1
    assert lines(caplog) == []
    loop.close()


@pytest.mark.usefixtures("slow_at_once")
def test_slow_descriptors_timers_and_calls_are_named(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    read, write = os.pipe()

    def readable(_events: int) -> None:
        os.read(read, 1)

    def tick(_name: str) -> None:
        loop.stop()

    loop.watch(read, READABLE, readable)
    os.write(write, b"x")
    loop.call_soon(list)
    loop.call_later(1, tick, "retention")
    loop.run()
    found = lines(caplog)
    assert any("kind=descriptor" in line and "readable" in line for line in found)
    assert any("kind=call callback=list" in line for line in found)
    assert any("kind=timer" in line and "tick of='retention'" in line for line in found)
    assert loop.lag.slow_callbacks == len(found)
    os.close(write)
    loop.unwatch(read)
    os.close(read)
    loop.close()


@pytest.mark.usefixtures("slow_at_once")
def test_the_completion_of_a_lane_names_the_lane(caplog: pytest.LogCaptureFixture) -> None:
    env = RealEnv()

    def done(_result: object) -> None:
        env.loop.stop()

    env.env.background.submit("recovery:/data", lambda: None, done)
    env.loop.run()
    env.close()
    assert any("lane=recovery:/data done=" in line for line in lines(caplog))


@pytest.mark.usefixtures("slow_at_once")
def test_a_step_of_a_long_job_is_named(caplog: pytest.LogCaptureFixture) -> None:
    env = RealEnv()

    def compare_ledgers() -> bool:
        env.loop.stop()
        return False

    Turns(env.env).add(compare_ledgers)
    env.loop.run()
    env.close()
    assert any("callback=Line._run step=" in line and "compare_ledgers" in line for line in lines(caplog))


def test_a_partial_is_named_by_its_function() -> None:
    def work(topic: str, number: int) -> None:
        raise AssertionError(topic, number)

    assert name_of(partial(work, "t"), (1,)).endswith("work of='t'")


def test_buckets_are_cumulative_and_end_with_all_turns() -> None:
    lag = LoopLag()
    for seconds in (0.00001, 0.0001, 0.2, 5000.0):
        lag.turn(seconds)
    found = dict(lag.cumulative())
    assert list(found.values()) == sorted(found.values())
    assert found["6.4e-05"] == 1
    assert found["0.000128"] == 2
    assert found["0.262144"] == 3
    assert found["+Inf"] == 4
