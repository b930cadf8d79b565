"""Runs seeds: `python -m kraft_node.testing.migration --seed-from 1 --seeds 100`."""

from __future__ import annotations

import argparse
import logging
import sys

from kraft_node.testing.migration.scenario import MigrationScenario


def main() -> int:
    """Exit code 1 if a seed breaks a law."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed-from", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--until-broken", action="store_true", help="stop at the first seed that breaks a law")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    outcomes = []
    for seed in range(options.seed_from, options.seed_from + options.seeds):
        outcomes.append(MigrationScenario(seed).run())
        if outcomes[-1].broken and options.until_broken:
            break
    broken = [one for one in outcomes if one.broken]
    for one in broken:
        print(f"seed {one.seed}: {one.broken}")
    undone, moves = sum(one.undone for one in outcomes), sum(one.moves for one in outcomes)
    print(f"{len(outcomes)} seeds, {len(broken)} broken; {undone} migrations undone, {moves} offsets checked")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
