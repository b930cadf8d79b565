"""The comparison with Apache Kafka: runs the protocol, continues a run, and writes the page.

python -m bench run [--budget 6h]    the whole protocol, unattended
python -m bench resume FILE          go on with a run that ended early
python -m bench page                 write docs/benchmarks from the samples
python -m bench rows                 list scenarios, their rows, and how long they take
python -m bench quick [SCENARIO ...] run everything at a tiny scale, to see that it works; no figures
python -m bench rehearse SCENARIO ... run one round at the true scale, to see that it works and how long it takes
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from bench.report import page
from bench.runs import environment, preflight, runner
from bench.runs.journal import Journal, JournalError, Run
from bench.runs.registry import scenarios_by_name
from bench.runs.row import Scenario
from tools import peers

DOCS = environment.ROOT / "docs" / "benchmarks"
QUICK = Path(__file__).parent / "out"
ROUNDS = 5
WAIT_QUIET_S = 600
ENDLESS_S = 1e9
UNITS = {"h": 3600, "m": 60, "s": 1, "": 1}

console = Console(stderr=True, highlight=False)


def main() -> int:
    """The command line. Exit codes: 0 done, 1 refused or failed, 3 the budget is used up."""
    options = _options()
    # SIGTERM must run the exit handlers of open blocks, which kill the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return int(options.function(options))
    except JournalError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="the whole protocol")
    run.add_argument("--rounds", type=int, default=ROUNDS)
    run.add_argument(
        "--seed", type=int, default=None, help="seed of the order (default: random; it is printed and stored)"
    )
    run.add_argument(
        "--only", nargs="+", metavar="SCENARIO", help="run only these; the page names such a run without its rows"
    )
    run.add_argument("--name", help="name of the samples' file (default: the date and the seed)")
    run.add_argument("--even-if-busy", action="store_true", help="run on a busy machine; the page notes it")
    run.set_defaults(function=_run)
    resume = commands.add_parser("resume", help="continue a run that ended early")
    resume.add_argument("file", type=Path)
    resume.set_defaults(function=_resume)
    for command in (run, resume):
        command.add_argument(
            "--budget", type=_seconds, default=ENDLESS_S, metavar="6h", help="start no step after this time"
        )
        command.add_argument("--folder", type=Path, help="folder of the servers' data (default: a temporary one)")
    written = commands.add_parser("page", help="write docs/benchmarks from the samples")
    written.add_argument("--check", action="store_true", help="write nothing; exit 1 if anything would change")
    written.set_defaults(function=_page)
    commands.add_parser("rows", help="list scenarios and rows").set_defaults(function=_rows)
    quick = commands.add_parser("quick", help="everything at a tiny scale; no figures")
    quick.add_argument("only", nargs="*", metavar="SCENARIO")
    quick.set_defaults(function=_quick)
    rehearse = commands.add_parser("rehearse", help="one round at the true scale; no figures")
    rehearse.add_argument("only", nargs="+", metavar="SCENARIO")
    rehearse.add_argument("--rounds", type=int, default=1)
    rehearse.set_defaults(function=_rehearse)
    return parser.parse_args()


def _seconds(text: str) -> float:
    """90m, 6h, 300s or plain seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([hms]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90m or 6h")
    return float(found[1]) * UNITS[found[2]]


def _chosen(names: list[str] | None) -> list[Scenario]:
    known = scenarios_by_name()
    unknown = set(names or ()) - set(known)
    if unknown:
        raise JournalError(f"unknown scenarios: {', '.join(sorted(unknown))}; `python -m bench rows` lists them")
    return [known[name] for name in names or known]


def _check_machine(chosen: list[Scenario], folder: Path | None) -> None:
    """Refuse a machine on which steps would fail; print the servers that will be skipped."""
    found = [] if peers.installed() else ["Apache Kafka is not installed: `make peers`"]
    found += preflight.problems(folder or Path(tempfile.gettempdir()))
    if found:
        raise JournalError("; ".join(found))
    for text in preflight.skipped(chosen):
        console.print(f"will be skipped: {text}")


def _wait_until_quiet() -> None:
    deadline = time.monotonic() + WAIT_QUIET_S
    while not environment.is_quiet() and time.monotonic() < deadline:
        console.print(f"waiting for a quiet machine: load {environment.load()[0]}")
        time.sleep(30)
    if not environment.is_quiet():
        raise JournalError(f"the machine is busy (load {environment.load()[0]}): end what runs, or give --even-if-busy")


def _check_committed() -> None:
    if environment.changed():
        raise JournalError(
            f"not committed: {', '.join(environment.changed())}; commit it, so that others can repeat the run"
        )


def _run(options: argparse.Namespace) -> int:
    chosen = _chosen(options.only)
    _check_committed()
    _check_machine(chosen, options.folder)
    if not options.even_if_busy:
        _wait_until_quiet()
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    name = options.name or f"{time.strftime('%Y-%m-%d-%H%M', time.gmtime())}-{seed}"
    minutes = sum(scenario.minutes for scenario in chosen) * options.rounds / ROUNDS
    console.print(f"seed {seed}, {len(chosen)} scenarios, {options.rounds} rounds, about {minutes:.0f} minutes")
    with tempfile.TemporaryDirectory(prefix="kraft-bench-", dir=options.folder) as top:
        head = runner.header(chosen, options.rounds, seed, quick=False, whole=options.only is None, folder=Path(top))
        journal = Journal.create(DOCS / "data" / f"{name}.jsonl", head)
        return _measured(journal, Path(top), options.budget)


def _resume(options: argparse.Namespace) -> int:
    journal = Journal.resume(options.file)
    _check_committed()
    then, now = journal.run.header["environment"]["trees"], environment.trees()
    if then != now:
        raise JournalError(f"the node or the bench was changed since: {then} then, {now} now; check that commit out")
    _check_machine(list(scenarios_by_name().values()), options.folder)
    with tempfile.TemporaryDirectory(prefix="kraft-bench-", dir=options.folder) as top:
        journal.add("continued", at=environment.now(), environment=environment.described(Path(top)))
        return _measured(journal, Path(top), options.budget)


def _measured(journal: Journal, top: Path, budget_s: float) -> int:
    preflight.raise_open_files()
    done = runner.go_on(journal, scenarios_by_name(), top, budget_s, console.print)
    console.print(f"samples: {journal.path}; write the page with `python -m bench page`")
    return 0 if done else 3


def _page(options: argparse.Namespace) -> int:
    changed = page.write(DOCS, only_check=options.check)
    console.print(f"changed: {', '.join(changed)}" if changed else "nothing has changed")
    return 1 if options.check and changed else 0


def _rows(_options: argparse.Namespace) -> int:
    for scenario in scenarios_by_name().values():
        how = f"{scenario.rounds_of(ROUNDS)} rounds in {'one life' if scenario.live else 'lives of their own'}"
        print(f"{scenario.name} ({scenario.section}; {scenario.minutes:g} min, {how}; {', '.join(scenario.servers)})")
        for row in scenario.rows:
            print(f"    {row.name} [{row.unit}]")
    print(f"{sum(s.minutes for s in scenarios_by_name().values()):.0f} minutes for {ROUNDS} rounds")
    return 0


def _quick(options: argparse.Namespace) -> int:
    """One round at a tiny scale. Exit code 1 if a step failed."""
    return _try("quick", options.only, 1, quick=True)


def _rehearse(options: argparse.Namespace) -> int:
    """Run rounds at the true scale on any machine, quiet or not. Exit code 1 if a step failed."""
    return _try("rehearsal", options.only, options.rounds, quick=False)


def _try(what: str, only: list[str], rounds: int, *, quick: bool) -> int:
    """Run scenarios into a separate file, from which no page is made."""
    chosen = _chosen(only)
    with tempfile.TemporaryDirectory(prefix="kraft-bench-") as top:
        head = runner.header(chosen, rounds, 1, quick=quick, whole=False, folder=Path(top))
        now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        journal = Journal.create(QUICK / f"{what}-{now}-{random.SystemRandom().randrange(10**6)}.jsonl", head)
        runner.go_on(journal, scenarios_by_name(), Path(top), ENDLESS_S, console.print)
    return 1 if failures(journal.run) else 0


def failures(run: Run) -> list[str]:
    """The failures, one line per step."""
    return [f"{key[1]}, {key[2]}: {end['error']}" for key, end in run.ends.items() if end["kind"] == "failed"]


if __name__ == "__main__":
    sys.exit(main())
