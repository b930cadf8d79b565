"""The report of detection, written from the files of runs and from the verdicts on survivors."""

from __future__ import annotations

import json
import math
import statistics
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tools.mutants.cores import CORES, PLANTED, ROOT
from tools.mutants.hunt import DIED, HUNG, LAW, SURVIVED, TESTS

FOLDER = ROOT / "docs" / "detection"
VERDICTS = ROOT / "tests" / "sim" / "survivors.toml"
Z = 1.96
"""Of a confidence of 95 %."""
COLORS = ("#0969da", "#1a7f37", "#bc4c00", "#8250df", "#cf222e", "#57606a", "#9a6700")
LEFT, PLOT, HEIGHT, TOP, RIGHT = 60, 520, 260, 30, 160
"""Pixels of the picture."""
COLUMNS = (
    "core",
    "mutants",
    "drawn",
    "broke a law",
    "hung or died",
    "by unit tests only",
    "survived",
    "found by seeds (95 %)",
    "seeds until a law was broken: median, 90 %",
)
OPEN = "not examined yet"
END_WORDS = 110
"""Characters of a change in the table of survivors."""


class Line(NamedTuple):
    """The end of one hunt, with the run that it belongs to."""

    core: str
    mutant: str
    outcome: str
    by: str
    seeds: int
    old: str
    new: str


class Run(NamedTuple):
    """One file."""

    name: str
    head: dict[str, Any]
    lines: list[Line]
    broken: list[str]
    """Seeds that broke a law without a mutant."""


def read(path: Path) -> Run:
    """Read a file of samples."""
    head, *rest = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [Line(**{key: line[key] for key in Line._fields}) for line in rest if "outcome" in line]
    return Run(path.name, head, lines, [line["error"] for line in rest if "error" in line])


def verdicts() -> dict[str, str]:
    """The verdicts on survivors, by the name of the mutant."""
    if not VERDICTS.exists():
        return {}
    found: dict[str, str] = tomllib.loads(VERDICTS.read_text())
    return found


def written(runs: Sequence[Run], judged: dict[str, str]) -> dict[str, str]:
    """The pages, by file name; the same files give the same bytes."""
    names = [*CORES, PLANTED]
    lines = {name: [line for run in runs for line in run.lines if line.core == name] for name in names}
    lines = {name: found for name, found in lines.items() if found}
    return {"README.md": _page(runs, lines, judged), "seeds.svg": _picture(lines)}


def _page(runs: Sequence[Run], lines: dict[str, list[Line]], judged: dict[str, str]) -> str:
    sites: Counter[str] = Counter()
    for run in runs:
        sites |= Counter(run.head["sites"])
    out = [
        "# How much the simulators find",
        "",
        "<!-- Written by `python -m tools.mutants page` from the files in `data`; do not edit. -->",
        "",
        "A simulation that finds nothing must prove that it could. So small wrong changes are drawn at random from the",
        "cores, and the simulators hunt each of them with random seeds. [The method](method.md) explains the kinds of",
        "changes, the budgets, and how to refute a line of this page.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
    ]
    for name, found in lines.items():
        count = Counter(line.outcome for line in found)
        ended = count[HUNG] + count[DIED]
        seeds = sorted(line.seeds for line in found if line.outcome == LAW)
        low, high = wilson(count[LAW] + ended, len(found))
        out.append(
            f"| {name} | {sites[name]:,} | {len(found)} | {count[LAW]} | {ended} | {count[TESTS]} | "
            f"{count[SURVIVED]} | {low:.0%} to {high:.0%} | {_quantiles(seeds)} |"
        )
    out += ["", "![Share of the mutants that are found, by the number of seeds](seeds.svg)", ""]
    out += _survivors(lines, judged)
    out += ["", "## Runs", ""]
    for run in runs:
        drawn = ", ".join(f"{name} {count}" for name, count in run.head["drawn"].items())
        hunted = len(run.lines) + len(run.broken)
        out.append(
            f"- [{run.name}](data/{run.name}): commit {run.head['commit'][:12]}, seed {run.head['seed']}, "
            f"begun {run.head['begun_at']}; drawn: {drawn}; hunted: {hunted}"
        )
        out += [f"    - without a mutant: {text}" for text in run.broken]
    return "\n".join(out) + "\n"


def _survivors(lines: dict[str, list[Line]], judged: dict[str, str]) -> list[str]:
    left = [line for found in lines.values() for line in found if line.outcome in (SURVIVED, TESTS)]
    if not left:
        return ["Every mutant was found by seeds." if lines else "Nothing has been hunted yet."]
    out = [
        "## What seeds did not find",
        "",
        "A verdict is a person's: `equivalent` with the reason, or what will find it. The verdicts stand in",
        "`tests/sim/survivors.toml`.",
        "",
        "| mutant | change | found by | verdict |",
        "|---|---|---|---|",
    ]
    for line in sorted(left, key=lambda line: (line.outcome, line.mutant)):
        change = f"{_code(line.old)} → {_code(line.new)}"
        verdict = judged.get(line.mutant, OPEN if line.outcome == SURVIVED else "")
        out.append(f"| `{line.mutant}` | {change} | {f'`{line.by}`' if line.by else 'nothing'} | {verdict} |")
    return out


def _code(text: str) -> str:
    """Code for a cell of a table."""
    words = " ".join(text.split()).replace("|", "¦").replace("`", "'")
    return f"`{words if len(words) <= END_WORDS else words[:END_WORDS] + '…'}`"


def _quantiles(seeds: list[int]) -> str:
    """Median and 0.9 quantile of numbers of seeds, as text; empty without any."""
    if not seeds:
        return ""
    return f"{statistics.median(seeds):.0f}, {seeds[math.ceil(0.9 * len(seeds)) - 1]}"


def wilson(found: int, total: int) -> tuple[float, float]:
    """The interval of Wilson for a share: it holds for few samples, too."""
    share = found / total
    middle = share + Z * Z / (2 * total)
    spread = Z * math.sqrt(share * (1 - share) / total + Z * Z / (4 * total * total))
    below = 1 + Z * Z / total
    return max(0.0, (middle - spread) / below), min(1.0, (middle + spread) / below)


def _picture(lines: dict[str, list[Line]]) -> str:
    """For each core the share of mutants that broke a law within so many seeds, on a log scale."""
    most = max((line.seeds for found in lines.values() for line in found), default=1)
    decades = max(1, math.ceil(math.log10(max(most, 2))))
    width, height = LEFT + PLOT + RIGHT, TOP + HEIGHT + 40

    def x(seeds: float) -> float:
        return round(LEFT + PLOT * math.log10(max(seeds, 1)) / decades, 1)

    def y(share: float) -> float:
        return round(TOP + HEIGHT * (1 - share), 1)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="16">share of mutants that broke a law, by the number of seeds</text>',
    ]
    for power in range(decades + 1):
        at = x(10.0**power)
        out.append(f'<line x1="{at}" y1="{TOP}" x2="{at}" y2="{TOP + HEIGHT}" stroke="#d0d7de"/>')
        out.append(f'<text x="{at}" y="{TOP + HEIGHT + 18}" text-anchor="middle" fill="#57606a">{10**power:,}</text>')
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        out.append(f'<line x1="{LEFT}" y1="{y(share)}" x2="{LEFT + PLOT}" y2="{y(share)}" stroke="#d0d7de"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y(share) + 4}" text-anchor="end" fill="#57606a">{share:.0%}</text>')
    for at, (name, found) in enumerate(lines.items()):
        color = COLORS[at % len(COLORS)]
        points = [(x(1), y(0))]
        seeds = sorted(line.seeds for line in found if line.outcome == LAW)
        for rank, value in enumerate(seeds, 1):
            points += [(x(value), points[-1][1]), (x(value), y(rank / len(found)))]
        points.append((LEFT + PLOT, points[-1][1]))
        path = " ".join(f"{px},{py}" for px, py in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        place = TOP + 16 * at + 10
        out.append(f'<rect x="{LEFT + PLOT + 12}" y="{place - 9}" width="10" height="10" fill="{color}"/>')
        out.append(f'<text x="{LEFT + PLOT + 28}" y="{place}">{name} ({len(found)})</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
