"""The entry point of `kraft-pipeline`: finds and runs the command."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import Final

from kraft_pipeline.cli.errors import Parser, print_error

GROUPS: Final = ("table", "meta", "scrub", "executor")
"""Modules of this package, in the order of the help."""
DEBUG: Final = "--debug"
FAILED: Final = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns its exit code."""
    parser = Parser(prog="kraft-pipeline", description="Data pipelines of a kraftcluster on Spark.")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error; also after the command")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for group in GROUPS:
        module = f"kraft_pipeline.cli.{group}"
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module).add(commands)
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args([one for one in given if one != DEBUG])
    options.debug = DEBUG in given
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        return 130
    except Exception as e:  # not expected by any command: a defect
        print_error(f"kraft-pipeline: {type(e).__name__}", e, debug=options.debug)
        if not options.debug:
            print(f"kraft-pipeline: this is a defect; {DEBUG} shows where", file=sys.stderr)
        return FAILED


def entry() -> None:
    """The console script."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
