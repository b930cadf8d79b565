"""Start of a node, its memory while idle and with idle connections, and recovery after a SIGKILL."""

from __future__ import annotations

import signal
import time

from bench.clients import asking, frames, load
from bench.runs.row import Measured, Row, Scenario, Step
from bench.servers.process import live_mib, rss_mib
from tests.compat.targets import Target

IDLE_S = 3.0
KILL_RATE = 2000
LEASE = "Kafka waits until the broker session of its former life has expired; ours recognises the same directory"
FIRST = "start: formatted disk to first acknowledged produce"
CONNECTION = "memory of an idle connection"
RSS, LIVE = "memory, idle: RSS", "memory, idle: live set"
IDLE_KILL, LOAD_KILL = "SIGKILL of an idle server to serving again", "SIGKILL under load to serving again"


def starts(step: Step) -> Measured:
    """Start, memory while idle and of idle connections, SIGKILL while idle and under load."""
    batch = frames.batch(100, 100)
    request = frames.produce("first", 0, batch)
    with step.node() as target:
        begun = time.monotonic()
        asking.spawn(target)
        first = asking.until_produced(target, "first", begun)
        time.sleep(step.size(IDLE_S, 0.5))
        rss, live = rss_mib(target), live_mib(target)
        grown = _connections(target, step.size(1000, 100))
        load.send(target, [request], count=step.size(2000, 20))
        idle = _killed(target)
        with load.sending(target, request, KILL_RATE) as sender:
            time.sleep(step.size(5.0, 0.5))
            assert sender.poll() is None, f"the load ended early\n{target.tail()}"
            loaded = _killed(target)
    return Measured({FIRST: first, RSS: rss, LIVE: live, CONNECTION: grown, IDLE_KILL: idle, LOAD_KILL: loaded})


def _connections(target: Target, count: int) -> float:
    """KiB per idle connection that has sent one request."""
    request = frames.metadata([])
    warm = [frames.Wire(target.port) for _ in range(count // 5)]
    for wire in warm:
        wire.ask(request)
    before = rss_mib(target)
    wires = [frames.Wire(target.port) for _ in range(count)]
    for wire in wires:
        wire.ask(request)
    time.sleep(2)
    grown = (rss_mib(target) - before) * 1024 / count
    for wire in warm + wires:
        wire.close()
    return max(0.0, grown)


def _killed(target: Target) -> float:
    """Seconds from a restart after a SIGKILL until a produce is acknowledged."""
    assert target.process is not None
    target.process.send_signal(signal.SIGKILL)
    target.process.wait()
    begun = time.monotonic()
    asking.spawn(target)
    return asking.until_produced(target, "first", begun)


SCENARIOS = [
    Scenario(
        "starts",
        "One node",
        (
            Row(FIRST, "s", False, 0.15),
            Row(RSS, "MiB", False, 0.12),
            Row(LIVE, "MiB", False),
            Row(
                *(CONNECTION, "KiB", False, 20.0, True),
                differs="a JVM whose heap has room shows little growth or none: there is no ratio then",
            ),
            Row(IDLE_KILL, "s", False, 0.1, differs=LEASE),
            Row(LOAD_KILL, "s", False, 0.1, differs=LEASE),
        ),
        starts,
        5,
    )
]
