"""`python -m tests.faults.migration --runs N [--seed S] [--minutes M]`: whole migrations until the budget is over."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.faults.migration.run import REVERTS, Migration


def main() -> int:
    """Returns exit code 1 if a run found a fault; the files of that run stay."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.migration", description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=600.0, help="no run begins later")
    parser.add_argument("--faults", type=int, default=2, help="faults in each state")
    text = "go back to ZooKeeper while controllers read it, once that many brokers are ours, or as the seed says"
    parser.add_argument("--revert", choices=REVERTS, help=text)
    options = parser.parse_args()
    deadline = time.monotonic() + 60 * options.minutes
    bad = done = 0
    for seed in range(options.seed, options.seed + options.runs):
        if time.monotonic() > deadline:
            break
        folder = Path(tempfile.mkdtemp(prefix=f"migration-{seed}-"))
        begun = time.monotonic()
        run = Migration(folder, seed, options.faults, reverts=options.revert)
        is_ok = False
        try:
            run.play()
        except Exception:  # whatever it is, the other seeds run
            bad += 1
            print(f"seed {seed}: BROKEN, files in {folder}\n{traceback.format_exc()}", flush=True)
        else:
            is_ok = True
            print(f"seed {seed}: ok, {run.summary()}, {time.monotonic() - begun:.0f} s", flush=True)
        finally:
            run.stop()
        if is_ok:
            shutil.rmtree(folder)  # its processes write there until they are stopped
        done += 1
    print(f"{done} migrations, {bad} broken")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
