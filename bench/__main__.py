"""`python -m bench [--rounds N] [--write docs/benchmarks.md] [SCENARIO ...]`: the comparison with Apache Kafka.

See `bench.rows`, `bench.cluster` and `bench.metadata` for what is measured; `node`, `cluster` and `metadata` name all
scenarios of each. `--write` puts tables and plot of a group into the page; for the node it also measures the codecs and
the metadata image, for `metadata` what an image and a failover cost in one process.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table

from bench import codec, etcd, image, report
from bench.cluster import CLIENTS, COMMITS
from bench.report import Samples
from bench.rows import KEPT, Figures, Load
from bench.scenarios import GROUPS, ROUNDS_MAX, ROWS_OF, SCENARIOS
from bench.servers import SERVERS
from kraft_node.cli.common import ToolError
from tools import peers

OUT = Path(__file__).parent / "out"
KEPT_FIGURES = OUT / "samples.json"


def measure(names: list[str], rounds: int, console: Console, keep: Callable[[Samples], None]) -> Samples:
    """All figures: row -> server -> one value a round; `keep` gets what there is after each scenario's round.

    A round that one of the two servers does not get through counts for neither.
    """
    samples: Samples = {}
    plan = [(name, at) for name in names for at in range(min(rounds, ROUNDS_MAX.get(name, rounds)))]
    columns = (*Progress.get_default_columns(), TimeElapsedColumn())
    with tempfile.TemporaryDirectory(prefix="kraft-bench-") as top, Progress(*columns, console=console) as progress:
        load = Load(Path(top))
        task = progress.add_task("", total=len(plan) * len(SERVERS))
        for scenario, at in plan:
            found: dict[str, Figures] = {}
            for server in list(SERVERS) if at % 2 == 0 else list(reversed(SERVERS)):
                progress.update(task, description=f"{scenario}, round {at + 1}, {server}")
                folder = Path(top) / f"{scenario}-{at}-{server}"
                begun = time.monotonic()
                try:
                    found[server] = SCENARIOS[scenario](server, folder, load)
                except (AssertionError, OSError, ToolError, subprocess.SubprocessError) as error:
                    if scenario in GROUPS["node"]:
                        raise  # its server may be left, beside which nothing is to be measured
                    why = str(error).partition("\n")[0]
                    progress.print(f"[bold]{scenario}, round {at + 1}, {server} failed[/]: {escape(why)}")
                if scenario not in KEPT:
                    shutil.rmtree(folder, ignore_errors=True)
                progress.advance(task)
                progress.print(f"{scenario}, round {at + 1}, {server}: {time.monotonic() - begun:.0f} s")
            if len(found) == len(SERVERS):
                for server, figures in found.items():
                    for row, value in figures.items():
                        samples.setdefault(row, {}).setdefault(server, []).append(value)
            keep(samples)
    return samples


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    choices = [*GROUPS, *SCENARIOS]
    parser.add_argument(
        "scenarios", nargs="*", default=["node"], help=f"of {', '.join(choices)}; node if none is named"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put tables and plot into this page")
    parser.add_argument(
        "--again",
        action="store_true",
        help="show or write the last run's figures, also of one cut short; measure nothing",
    )
    parser.add_argument("--json", action="store_true", help="samples and ratios for machines")
    options = parser.parse_args()
    unknown = set(options.scenarios) - set(choices)
    if unknown:
        parser.error(f"unknown scenarios: {', '.join(sorted(unknown))}")
    options.names = [n for named in options.scenarios for n in GROUPS.get(named, [named])]
    options.groups = [group for group, scenarios in GROUPS.items() if set(scenarios) <= set(options.names)]
    if options.write and not options.groups:
        parser.error(f"--write needs all scenarios of one of {', '.join(GROUPS)}")
    return options


def _measured(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Everything that is asked for; what there is so far is kept in a file, for `--again`."""
    figures: dict[str, Any] = {"samples": {}, "codecs": {}, "image": {}, "many": {}, "etcd": {}}
    groups = options.groups if options.write else ()
    if "node" in groups:
        figures["codecs"] = codec.results()
        figures["image"] = image.topic_cost()
    if "metadata" in groups:
        figures["many"] = image.beside_many()
    if "cluster" in groups:
        with tempfile.TemporaryDirectory(prefix="kraft-bench-") as folder:
            figures["etcd"] = etcd.results(Path(folder), CLIENTS, COMMITS)
    OUT.mkdir(exist_ok=True)

    def keep(samples: Samples) -> None:
        figures["samples"] = samples
        KEPT_FIGURES.write_text(json.dumps(figures, indent=1))

    measure(options.names, options.rounds, console, keep)
    return figures


def _write(page: Path, group: str, figures: dict[str, Any]) -> Path:
    """Put the tables of a group into the page; where its picture is."""
    samples = {row: values for row, values in figures["samples"].items() if row in ROWS_OF[group]}
    picture = page.with_name(f"{page.stem}-{group}.svg")
    report.plot(samples, picture)
    body = report.compared(samples, picture.name)
    if group == "node":
        body += report.parts_of_a_node(figures["codecs"], figures["image"])
    elif group == "metadata":
        body += report.parts_of_many(figures["many"])
    else:
        body += report.parts_of_a_cluster(samples, figures.get("etcd", {}))
    report.write_page(page, group, body)
    return picture


def main() -> int:
    """The command line."""
    options = _options()
    if not peers.installed():
        print("bench: Apache Kafka is not installed: `make peers`", file=sys.stderr)
        return 1
    console = Console(stderr=True)
    figures = json.loads(KEPT_FIGURES.read_text()) if options.again else _measured(options, console)
    for group in options.groups if options.write else ():
        picture = _write(options.write, group, figures)
        console.print(f"written: {options.write}, {picture}")
    if options.json:
        print(json.dumps({**figures, "ratios": report.ratios(figures["samples"])}))
        return 0
    shown = Table(*report.HEAD)
    for line in report.table(figures["samples"]):
        shown.add_row(*line)
    Console().print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
