"""How long the loop waits for a processor beside processes that compute all the time, by the slice that it asks for.

`python -m bench.measurements.slices [--rounds N] [--busy N] [--slice US ...]` lets a process send a byte to the node's
loop every millisecond and wait for the answer. It prints these waits, and the loop's mean wait for a processor, which
Linux counts. A slice of 0 is Linux's own. Each round has another order of the slices.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from bench.measurements.lanes import asked
from kraft_node.runtime.cpu_slice import SLICE_NS, shorten_slice
from kraft_node.runtime.env import RealEnv

WAITED, TURNS = 1, 2
"""Fields of schedstat: nanoseconds in the queue of a processor, and turns on one."""
US: Final = 1_000


def main() -> int:
    """Run the rounds and print a table. Returns the exit code 0, or 1 if the system takes no slices."""
    parser = argparse.ArgumentParser(prog="python -m bench.measurements.slices", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--busy", type=int, default=os.cpu_count(), help="processes that compute (default: %(default)s)"
    )
    parser.add_argument("--slice", type=int, nargs="+", metavar="US", default=[0, 1_000, 500, SLICE_NS // US, 100])
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {options.busy} busy processes")
    context = get_context("spawn")
    busy = [context.Process(target=_compute, daemon=True) for _ in range(options.busy)]
    for process in busy:
        process.start()
    try:
        for number in range(options.rounds):
            slices = list(options.slice)
            random.Random(number).shuffle(slices)
            for slice_us in slices:
                if not shorten_slice(slice_us * US):
                    print("this system takes no slices")
                    return 1
                waits, queued_us = measured()
                p50, p99 = waits[len(waits) // 2], waits[-len(waits) // 100]
                print(f"slice {slice_us:5} us: p50 {p50:5.2f} ms, p99 {p99:5.2f} ms, in the queue {queued_us:4.0f} us")
    finally:
        for process in busy:
            process.kill()
    return 0


def measured() -> tuple[list[float], float]:
    """The sorted waits of the requests in ms, and the loop's mean wait for a processor in microseconds."""
    readings: list[list[int]] = []

    def read() -> None:
        readings.append(_schedstat())

    waits = asked(RealEnv(), read, read)
    before, after = readings
    return waits, (after[WAITED] - before[WAITED]) / (after[TURNS] - before[TURNS]) / US


def _schedstat() -> list[int]:
    return [int(field) for field in Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()]


def _compute() -> None:
    while True:
        pass


if __name__ == "__main__":
    sys.exit(main())
