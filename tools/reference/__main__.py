"""Write the generated pages; with `--check` write nothing and exit with 1 if a page would change."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.reference.pages import pages

ROOT = Path(__file__).resolve().parents[2]


def stale(root: Path = ROOT) -> list[str]:
    """The pages that differ from their sources, by their path below `root`."""
    return [
        name
        for name, text in pages(root).items()
        if not (root / name).is_file() or (root / name).read_text(encoding="utf-8") != text
    ]


def main() -> int:
    """Print the names of stale pages, and write them unless `--check` is given. Returns 1 if `--check` found any."""
    parser = argparse.ArgumentParser(prog="python -m tools.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page would change")
    options = parser.parse_args()
    changed = stale()
    for name in changed:
        print(name)
        if not options.check:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(pages(ROOT)[name], encoding="utf-8")
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
