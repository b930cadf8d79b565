"""`python -m kraft_node.testing.raft`: run seeds. Exit code 0: every law held; 1: a law was broken."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable

from kraft_node.testing.raft.story import Story
from kraft_node.testing.raft.sweep import run_seed, sweep, tail_of_story


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m kraft_node.testing.raft", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many; 0: until Ctrl-C")
    parser.add_argument("--seed-from", type=int, default=1, help="the first seed")
    parser.add_argument("--events", type=int, default=2000, help="events of the core per seed")
    parser.add_argument("--story", action="store_true", help="print every event")
    parser.add_argument("--stop-after", type=int, default=1, help="failures")
    options = parser.parse_args(arguments)
    if options.seeds < 0 or options.events < 1:
        parser.error("--seeds: 0 or more; --events: at least 1")
    first = options.seed_from
    seeds: Iterable[int] = range(first, first + options.seeds) if options.seeds else itertools.count(first)
    if options.story:
        return _tell(seeds, options.events)
    try:
        failures = sweep(seeds, options.events, stop_after=options.stop_after)
    except KeyboardInterrupt:
        return 0
    if failures:
        print("\n".join(tail_of_story(failures[0])))
    return 1 if failures else 0


def _tell(seeds: Iterable[int], events: int) -> int:
    for seed in seeds:
        story = Story()
        try:
            sim = run_seed(seed, events, story)
        except AssertionError as e:
            print("\n".join(story.lines))
            print(f"seed {seed}: {e}")
            return 1
        print("\n".join(story.lines))
        print(f"seed {seed}: {sim.summary()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
