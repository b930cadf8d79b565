"""`python -m bench [--rounds N] [--write docs/benchmarks.md] [SCENARIO ...]`: the comparison with Apache Kafka.

See `bench.rows`, `bench.cluster` and `bench.metadata` for what is measured; `node`, `cluster` and `metadata` name all
scenarios of each. `--write` puts tables and plot of a group into the page; for the node it also measures the codecs and
the metadata image, for `metadata` what an image and a failover cost in one process.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table

from bench import codec, image, report
from bench.report import Samples
from bench.rows import KEPT, ROUNDS_MAX, Load
from bench.scenarios import GROUPS, ROWS_OF, SCENARIOS
from bench.servers import SERVERS
from tools import peers

OUT = Path(__file__).parent / "out"


def measure(names: list[str], rounds: int, console: Console, keep: Callable[[Samples], None]) -> Samples:
    """All figures: row -> server -> one value a round; `keep` gets what there is after each scenario's round."""
    samples: Samples = {}
    plan = [(name, at) for name in names for at in range(min(rounds, ROUNDS_MAX.get(name, rounds)))]
    columns = (*Progress.get_default_columns(), TimeElapsedColumn())
    with tempfile.TemporaryDirectory(prefix="kraft-bench-") as top, Progress(*columns, console=console) as progress:
        load = Load(Path(top))
        task = progress.add_task("", total=len(plan) * len(SERVERS))
        for scenario, at in plan:
            for server in list(SERVERS) if at % 2 == 0 else list(reversed(SERVERS)):
                progress.update(task, description=f"{scenario}, round {at + 1}, {server}")
                folder = Path(top) / f"{scenario}-{at}-{server}"
                begun = time.monotonic()
                for row, value in SCENARIOS[scenario](server, folder, load).items():
                    samples.setdefault(row, {}).setdefault(server, []).append(value)
                if scenario not in KEPT:
                    shutil.rmtree(folder, ignore_errors=True)
                progress.advance(task)
                progress.print(f"{scenario}, round {at + 1}, {server}: {time.monotonic() - begun:.0f} s")
            keep(samples)
    return samples


def main() -> int:
    """The command line."""
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
    names = [n for named in options.scenarios for n in GROUPS.get(named, [named])]
    groups = [group for group, scenarios in GROUPS.items() if set(scenarios) <= set(names)]
    if options.write and not groups:
        parser.error(f"--write needs all scenarios of one of {', '.join(GROUPS)}")
    if not peers.installed():
        print("bench: Apache Kafka is not installed: `make peers`", file=sys.stderr)
        return 1
    console = Console(stderr=True)
    kept = OUT / "samples.json"
    figures: dict[str, Any]
    if options.again:
        figures = json.loads(kept.read_text())
    else:
        figures = {"samples": {}, "codecs": {}, "image": {}, "many": {}}
        if options.write and "node" in groups:
            figures["codecs"] = codec.results()
            figures["image"] = image.topic_cost()
        if options.write and "metadata" in groups:
            figures["many"] = image.beside_many()
        OUT.mkdir(exist_ok=True)

        def keep(samples: Samples) -> None:
            figures["samples"] = samples
            kept.write_text(json.dumps(figures, indent=1))

        measure(names, options.rounds, console, keep)
    samples: Samples = figures["samples"]
    for group in groups if options.write else ():
        of_group = {row: values for row, values in samples.items() if row in ROWS_OF[group]}
        picture = options.write.with_name(f"{options.write.stem}-{group}.svg")
        report.plot(of_group, picture)
        body = report.compared(of_group, picture.name)
        if group == "node":
            body += report.parts_of_a_node(figures["codecs"], figures["image"])
        if group == "metadata":
            body += report.parts_of_many(figures["many"])
        report.write_page(options.write, group, body)
        console.print(f"written: {options.write}, {picture}")
    if options.json:
        print(json.dumps({**figures, "ratios": report.ratios(samples)}))
        return 0
    shown = Table(*report.HEAD)
    for line in report.table(samples):
        shown.add_row(*line)
    Console().print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
