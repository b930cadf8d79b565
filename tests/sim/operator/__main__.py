"""`python -m tests.sim.operator [--seeds N] [--first SEED] [--story NAME] [--crashes]`: more than the everyday tests.

Every seed runs every story with faults, and the replacement of authorities (story `authorities`). `--crashes` kills the
operator after each write of each story instead. A failure is printed with the seed and the story that replay it.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.sim.operator import authorities
from tests.sim.operator.stories import BY_NAME, STORIES, with_chaos, with_crash_after

AUTHORITIES = "authorities"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim.operator", description="The planner over real Raft cores"
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--story", choices=sorted([*BY_NAME, AUTHORITIES]))
    parser.add_argument("--crashes", action="store_true", help="the operator dies after each write")
    args = parser.parse_args()
    stories = [BY_NAME[args.story]] if args.story in BY_NAME else STORIES if args.story is None else []
    failed = runs = events = 0
    began = time.monotonic()
    for seed in range(args.first, args.first + args.seeds):
        for story in stories:
            try:
                if args.crashes:
                    writes = 1
                    while with_crash_after(story, seed, writes):
                        writes += 1
                        runs += 1
                else:
                    events += with_chaos(story, seed).sim.events
                    runs += 1
            except AssertionError as error:
                failed += 1
                print(f"FAILED --first {seed} --seeds 1 --story {story.name!r}: {str(error)[:600]}", flush=True)
        if args.story in {None, AUTHORITIES}:
            try:
                runs += _authorities(seed, crashes=args.crashes)
            except AssertionError as error:
                failed += 1
                print(f"FAILED --first {seed} --seeds 1 --story {AUTHORITIES}: {str(error)[:600]}", flush=True)
    print(f"{runs} runs, {events} events of the core, {failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def _authorities(seed: int, *, crashes: bool) -> int:
    """Replace authorities under one seed. Returns the number of runs."""
    if not crashes:
        authorities.run(seed)
        return 1
    writes = 1
    while authorities.run_with_crash_after(seed, writes):
        writes += 1
    return writes


if __name__ == "__main__":
    sys.exit(main())
