"""`python -m bench [--rounds N] [SCENARIO ...]`: the comparison with Apache Kafka; see `bench.rows`."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.rows import ROWS, SCENARIOS, Figures, Load
from bench.servers import SERVERS
from tools import peers

OUT = Path(__file__).parent / "out"
Samples = dict[str, dict[str, list[float]]]


def measure(names: list[str], rounds: int, console: Console) -> Samples:
    """All figures: row -> server -> one value a round."""
    samples: Samples = {}
    with tempfile.TemporaryDirectory(prefix="kraft-bench-") as folder, Progress(console=console) as progress:
        load = Load(Path(folder))
        task = progress.add_task("", total=len(names) * rounds * len(SERVERS))
        for scenario in names:
            for round_ in range(rounds):
                order = list(SERVERS) if round_ % 2 == 0 else list(reversed(SERVERS))
                for server in order:
                    progress.update(task, description=f"{scenario}, round {round_ + 1}, {server}")
                    figures: Figures = SCENARIOS[scenario](server, Path(folder) / server, load)
                    for row, value in figures.items():
                        samples.setdefault(row, {}).setdefault(server, []).append(value)
                    shutil.rmtree(Path(folder) / server, ignore_errors=True)
                    progress.advance(task)
    return samples


def ratios(samples: Samples) -> dict[str, dict[str, float]]:
    """Median, least and greatest ratio ours/Kafka a row, by pairs of one round."""
    out = {}
    for row, by_server in samples.items():
        pairs = [a / b for a, b in zip(by_server["ours"], by_server["kafka"], strict=True) if b > 0]
        if pairs:
            out[row] = {"median": statistics.median(pairs), "min": min(pairs), "max": max(pairs)}
    return out


def reached(row: str, ratio: float) -> bool:
    """Whether the ratio is as good as what is aimed at."""
    return ratio >= ROWS[row].aim if ROWS[row].more_is_better else ratio <= ROWS[row].aim


def table(samples: Samples) -> list[list[str]]:
    """The rows as text: name, ours, Kafka, ratio with spread, aim, reached."""
    lines = []
    for row, ratio in ratios(samples).items():
        ours, kafka = (statistics.median(samples[row][s]) for s in ("ours", "kafka"))
        sign = "≥" if ROWS[row].more_is_better else "≤"
        lines.append(
            [
                row,
                f"{ours:,.3g} {ROWS[row].unit}",
                f"{kafka:,.3g} {ROWS[row].unit}",
                f"{ratio['median']:.2f} ({ratio['min']:.2f}-{ratio['max']:.2f})",
                f"{sign} {ROWS[row].aim:.2g}",
                "yes" if reached(row, ratio["median"]) else "**no**",
            ]
        )
    return lines


HEAD = ["row", "ours", "Kafka 4.3.1", "ours/Kafka (spread)", "aim", "reached"]


def markdown(samples: Samples, rounds: int) -> str:
    """The table as docs/benchmarks.md holds it."""
    lines = [HEAD, ["---"] * len(HEAD), *table(samples)]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"Medians of {rounds} interleaved rounds on one machine with 2 cores; the ratio is what counts.\n\n{body}\n"


def plot(samples: Samples, path: Path) -> None:
    """Ratios as bars, beyond 1 to the better side."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    found = ratios(samples)
    better = {r: (x["median"] if ROWS[r].more_is_better else 1 / x["median"]) for r, x in found.items()}
    figure, axes = plt.subplots(figsize=(10, 0.4 * len(better) + 1.5), layout="constrained")
    axes.barh(
        list(better),
        list(better.values()),
        color=["tab:green" if reached(r, found[r]["median"]) else "tab:orange" for r in better],
    )
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.invert_yaxis()
    axes.set_xlabel("times better than Apache Kafka 4.3.1 (orange: short of the aim)")
    figure.savefig(path)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("scenarios", nargs="*", default=list(SCENARIOS), help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="samples and ratios for machines")
    options = parser.parse_args()
    unknown = set(options.scenarios) - set(SCENARIOS)
    if unknown:
        parser.error(f"unknown scenarios: {', '.join(sorted(unknown))}")
    if not peers.installed():
        print("bench: Apache Kafka is not installed: `make peers`", file=sys.stderr)
        return 1
    console = Console(stderr=True)
    samples = measure(options.scenarios, options.rounds, console)
    OUT.mkdir(exist_ok=True)
    (OUT / "samples.json").write_text(json.dumps(samples, indent=1))
    (OUT / "benchmarks.md").write_text(markdown(samples, options.rounds))
    plot(samples, OUT / "benchmarks.png")
    if options.json:
        print(json.dumps({"samples": samples, "ratios": ratios(samples)}))
        return 0
    shown = Table(*HEAD)
    for line in table(samples):
        shown.add_row(*line)
    Console().print(shown)
    console.print(f"written: {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
