"""`python -m tests.sim.operator.nodes [--seeds N] [--first SEED]`: the whole operator over whole nodes, under seeds.

`--seed SEED --story` replays one seed and prints its events. The exit code is 1 if a seed broke a law.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter

from rich.console import Console
from rich.progress import track

from tests.sim.operator.nodes.life import run


def main() -> int:
    """Run the seeds that the arguments name; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.operator.nodes", description="The operator over nodes.")
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--story", action="store_true", help="with --seed: print the events")
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.seeds) if args.seed is None else [args.seed]
    ran, failed, began, done = 0, 0, time.monotonic(), Counter[str]()
    shown = Console(stderr=True)
    stopped: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: stopped.append(number))  # Ctrl-C: after the present seed
    for seed in track(seeds, "seeds", console=shown, disable=not shown.is_terminal, transient=True):
        if stopped:
            break
        result = run(seed)
        ran += 1
        if args.seed is not None and args.story:
            print("\n".join(result.story))
        done.update(result.faults)
        if not result.good:
            failed += 1
            print(f"FAILED --seed {seed} --story: {str(result.findings[0])[:900]}", flush=True)
    events = ", ".join(f"{count} {name}" for name, count in sorted(done.items()))
    print(f"{ran} seeds, {failed} failed, {time.monotonic() - began:.0f} s: {events}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
