"""`python -m tests.faults --minutes N [--seed S] [--faults killed,paused]`: run rounds until the time is over."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from tests.faults import nemesis
from tests.faults.rounds import play


def main() -> int:
    """Returns exit code 1 if a round found a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--round-seconds", type=float, default=60.0)
    parser.add_argument("--faults", help=f"comma-separated, of: {', '.join(nemesis.FAULTS)}")
    parser.add_argument("--apache", default="", help="members that are Apache Kafka, as c1,b11")
    arguments = parser.parse_args()
    apache = [name for name in arguments.apache.split(",") if name]
    names = arguments.faults.split(",") if arguments.faults else None
    unknown = [name for name in names or () if name not in nemesis.FAULTS]
    if unknown:
        parser.error(f"--faults: no such fault: {', '.join(unknown)}")
    console = Console()
    missing = [name for name in nemesis.FAULTS if name not in nemesis.available()]
    if missing:
        console.print(f"[yellow]this machine cannot make: {', '.join(missing)}[/]")
    deadline = time.monotonic() + arguments.minutes * 60
    seed, bad = arguments.seed, 0
    while time.monotonic() < deadline:
        folder = Path(tempfile.mkdtemp(prefix=f"faults-{seed}-"))
        result = play(folder, seed, arguments.round_seconds, names, lambda text: console.print(f"  {text}"), apache)
        console.print(result.text(), style="green" if result.good else "red", markup=False)
        if not result.good:
            bad += 1
            console.print(f"kept: {folder}", markup=False)
        seed += 1
    console.print(f"{seed - arguments.seed} rounds, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
