"""How long a request waits beside a lane that runs Python, by the interpreter's switch interval.

`python -m bench.measurements.lanes [--rounds N] [--interval MS ...]` lets a process send a byte to the node's loop
every millisecond and wait for the answer, while a lane runs Python without a pause. It prints the waits, and the work
of the lane: a short interval must not cost much of it. Each round has another order of the intervals.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any, Final

from kraft_node.runtime.background import SWITCH_S
from kraft_node.runtime.env import RealEnv
from kraft_node.runtime.loop import READABLE

REQUESTS: Final = 1_000
PAUSE_S: Final = 0.001
PYTHON_MS: Final = 5.0
"""Python's own interval."""


def main() -> int:
    """Run the rounds and print a table. Returns the exit code 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.measurements.lanes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--interval", type=float, nargs="+", metavar="MS", default=[PYTHON_MS, 1.0, SWITCH_S * 1000])
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    for number in range(options.rounds):
        intervals = list(options.interval)
        random.Random(number).shuffle(intervals)
        for interval in intervals:
            waits, turns = measured(interval)
            p50, p99 = waits[len(waits) // 2], waits[-len(waits) // 100]
            print(f"interval {interval:4.1f} ms: p50 {p50:6.2f} ms, p99 {p99:6.2f} ms, lane {turns:,.0f}/s", flush=True)
    return 0


def measured(interval_ms: float) -> tuple[list[float], float]:
    """The sorted waits of the requests in ms, and the turns of the lane a second."""
    real = RealEnv()
    sys.setswitchinterval(interval_ms / 1000)
    turns = 0
    stopping = False
    begun = taken_s = 0.0

    def lane() -> None:
        nonlocal turns
        found: dict[int, int] = {}
        while not stopping:
            for number in range(100):
                found[number] = number * 2
            turns += 1

    def begin() -> None:
        nonlocal begun
        real.background.submit("busy", lane, lambda _: None)
        begun = time.monotonic()

    def end() -> None:
        nonlocal stopping, taken_s
        stopping = True
        taken_s = time.monotonic() - begun

    waits = asked(real, begin, end)
    return waits, turns / taken_s


def asked(real: RealEnv, begin: Callable[[], None], end: Callable[[], None]) -> list[float]:
    """Run the loop of `real` while a process sends it requests, and close it. Returns the sorted waits in ms.

    `begin` is called when the process is ready to send, `end` after its last request.
    """
    near, far = socket.socketpair()
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    asking = context.Process(target=_ask, args=(far, sender))
    asking.start()
    far.close()
    receiver.recv()

    def answer(_mask: int) -> None:
        data = near.recv(1)
        if data:
            near.send(data)
        else:
            end()
            real.loop.stop()

    begin()
    real.loop.watch(near.fileno(), READABLE, answer)
    real.loop.run()
    real.close()
    waits: list[float] = receiver.recv()
    asking.join()
    near.close()
    return sorted(waits)


def _ask(connection: socket.socket, sender: Any) -> None:
    sender.send("ready")
    waits: list[float] = []
    for _ in range(REQUESTS):
        begun = time.perf_counter()
        connection.send(b"?")
        connection.recv(1)
        waits.append((time.perf_counter() - begun) * 1000)
        time.sleep(PAUSE_S)
    connection.close()
    sender.send(waits)


if __name__ == "__main__":
    sys.exit(main())
