"""The command line of `tools.mutants`.

Exit codes: 0 done; 1 a hunt found a defect or nothing, or the page would change; 2 wrong use.
"""

from __future__ import annotations

import argparse
import difflib
import random
import re
import sys
import time
from pathlib import Path

from tools import mutants
from tools.mutants import journal, page
from tools.mutants.cores import CORES, PLANTED, ROOT, SIMULATORS, find
from tools.mutants.hunt import SURVIVED, NotTheMutantError, hunt

UNITS = {"h": 3600, "m": 60, "s": 1, "": 1}


def main(arguments: list[str] | None = None) -> int:
    """Run the command that the arguments name."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants",
        description=mutants.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="draw mutants and hunt them")
    run.add_argument("--core", nargs="+", choices=[*CORES, PLANTED], default=[*CORES, PLANTED])
    run.add_argument("--sample", type=int, default=40, metavar="N", help="mutants of each core")
    run.add_argument("--seed", type=int, help="seed of the sample (default: random; it is printed and stored)")
    run.add_argument("--jobs", type=int, default=2, help="number of parallel hunts")
    run.add_argument(
        "--seeds", nargs="+", type=_seeds, default=[], metavar="SIMULATOR=N", help="seeds of each simulator"
    )
    run.add_argument("--budget", type=_seconds, default=1e9, metavar="2h", help="start no hunt after this time")
    run.set_defaults(function=_run)
    listed = commands.add_parser("list", help="list all mutants of a core")
    listed.add_argument("core", choices=list(CORES))
    listed.set_defaults(function=_list)
    shown = commands.add_parser("show", help="show a mutant as a diff")
    hunted = commands.add_parser("hunt", help="hunt one mutant")
    hunted.add_argument("--first", type=int, help="first seed (default: random)")
    for command, function in ((shown, _show), (hunted, _hunt)):
        command.add_argument("name")
        command.set_defaults(function=function)
    written = commands.add_parser("page", help="write docs/detection")
    written.add_argument("--check", action="store_true", help="write nothing; exit 1 if anything would change")
    written.set_defaults(function=_page)
    options = parser.parse_args(arguments)
    return int(options.function(options))


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([hms]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90m or 6h")
    return float(found[1]) * UNITS[found[2]]


def _seeds(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    if name not in SIMULATORS or not count.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not SIMULATOR=N with one of {', '.join(SIMULATORS)}")
    return name, int(count)


def _run(options: argparse.Namespace) -> int:
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    path = journal.DATA / f"{time.strftime('%Y-%m-%d-%H%M', time.gmtime())}-{seed}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}, {path.relative_to(ROOT)}", flush=True)
    try:
        broken = journal.run(
            path,
            options.core,
            sample=options.sample,
            seed=seed,
            jobs=options.jobs,
            budgets=dict(options.seeds),
            budget_s=options.budget,
            say=lambda text: print(text, flush=True),
        )
    except (FileExistsError, RuntimeError) as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    return 1 if broken else 0


def _list(options: argparse.Namespace) -> int:
    for mutant in CORES[options.core].mutants():
        print(mutant.name)
    return 0


def _show(options: argparse.Namespace) -> int:
    try:
        core, mutant = find(options.name)
    except KeyError:
        return _unknown(options.name)
    source = (ROOT / core.package / mutant.file).read_text()
    before, after = (text.splitlines(keepends=True) for text in (source, mutant.plant(source)))
    sys.stdout.writelines(difflib.unified_diff(before, after, mutant.file, mutant.file))
    return 0


def _hunt(options: argparse.Namespace) -> int:
    try:
        core, mutant = find(options.name)
    except KeyError:
        return _unknown(options.name)
    number = random.SystemRandom().randrange(1_000_000) if options.first is None else options.first
    try:
        end = hunt(core, mutant, random.Random(number))
    except NotTheMutantError as error:
        print(f"BROKEN {error}")
        return 1
    print(f"{end.outcome} {end.by} after {end.seeds} seeds, {end.seconds:.0f} s (--first {number}): {end.detail}")
    return 1 if end.outcome == SURVIVED else 0


def _unknown(name: str) -> int:
    print(f"mutants: {name!r} is no mutant; `python -m tools.mutants list CORE` lists them", file=sys.stderr)
    return 2


def _page(options: argparse.Namespace) -> int:
    runs = [page.read(path) for path in sorted(journal.DATA.glob("*.jsonl"))]
    changed = []
    for name, text in page.written(runs, page.verdicts()).items():
        path: Path = page.FOLDER / name
        if path.exists() and path.read_text() == text:
            continue
        changed.append(name)
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if changed:
        print(f"{'would change' if options.check else 'written'}: {', '.join(changed)}")
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
