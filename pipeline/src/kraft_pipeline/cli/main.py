"""Finds the command of `kraft-pipeline`."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import Final

GROUPS: Final = ("table", "meta", "scrub", "executor")
"""Modules of this package, in the order of the help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    parser = argparse.ArgumentParser(prog="kraft-pipeline", description="Data pipelines of a kraftcluster on Spark.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for group in GROUPS:
        module = f"kraft_pipeline.cli.{group}"
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module).add(commands)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        return 130


def entry() -> None:
    """The console script."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
