"""`python -m tests.crash [--points N] [--seed N]`: cut the power of a node N times.

Exit code 1: a promise was broken. Needs FUSE: install fuse3, and run as a user that may mount.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.crash.points import Broken, Rig

LIVES_OF_A_NODE = 20
"""Then a new node begins with an empty disk: checks read all that was written."""


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--seed", type=int, help="of the points; drawn and printed without it")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    done = in_start = acknowledged = 0
    while done < options.points:
        print(f"seed {seed}: a new node", flush=True)
        folder = tempfile.mkdtemp(prefix="kraft-crash-")
        with Rig(Path(folder), seed, say=lambda words: print(words, flush=True)) as rig:
            for _ in range(min(LIVES_OF_A_NODE, options.points - done)):
                try:
                    rig.lose_power_once()
                except Broken as error:
                    print(f"BROKEN {error}\n  the node's log is in {folder}/node; replay: --seed {seed} --points 20")
                    return 1
                done += 1
            in_start += rig.crashes_in_start
            acknowledged += rig.acknowledged
        seed += 1
    print(f"{done} losses of power, {in_start} of them in a start; {acknowledged} records acknowledged; none was lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
