"""Write the pictures; with `--check` write nothing and exit with 1 if a picture would change."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.diagrams.pictures import PICTURES

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "images"


def stale() -> list[str]:
    """The pictures that differ from their sources."""
    return [
        name
        for name, draw in PICTURES.items()
        if not (FOLDER / name).is_file() or (FOLDER / name).read_text(encoding="utf-8") != draw()
    ]


def main() -> int:
    """Write or check the pictures."""
    parser = argparse.ArgumentParser(prog="python -m tools.diagrams", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a picture would change")
    options = parser.parse_args()
    changed = stale()
    for name in changed:
        print(FOLDER / name)
        if not options.check:
            (FOLDER / name).write_text(PICTURES[name](), encoding="utf-8")
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
