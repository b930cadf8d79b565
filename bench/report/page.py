"""The page of results, made from the files of runs alone, so that nothing in it is edited by hand.

Tables and pictures show the newest run of the whole protocol. The page lists all runs in the folder, so that readers
see which runs exist. A partial run is listed but not shown; a quick run is refused.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from bench.report import picture
from bench.report.intervals import BETTER, NOISE, UNJUDGED, WORSE, Interval, median_interval, ratios, reaches, verdict
from bench.report.marked import grid
from bench.runs import journal
from bench.runs.journal import JournalError, Key, Run
from bench.runs.row import Row

MARKS = {BETTER: "🟢 better", NOISE: "⚪ within noise", WORSE: "🔴 worse", UNJUDGED: "- too few samples"}
TITLE = "# Benchmarks\n\n"
INTRO = """\
This page is generated: `python -m bench page` writes it from the raw samples in [data](data), and a test compares. Read
[the protocol](protocol.md) for the rules of a run and what the two servers do differently, and
[how the rows are measured](rows.md) for each row, and what is not measured.
"""
NO_RUN = """\
No run of the whole protocol has been made yet. Until then only [the figures of the former protocol](former.md) exist.
"""
LEGEND = """\
- *Ratio* is the median of the ratios of the rounds. Its bounds are order statistics, an exact confidence interval.
- 🟢 better and 🔴 worse: the whole interval lies on that side of 1. ⚪ within noise: it does not.
- *Aim* is apart from that: a bound for the ratio or, with a unit, for our own figure. *Unsure* means that the interval
  holds values on both sides of the aim.
- *Differs* is the number of what the two servers do differently in a row, below the table. A row or a line without that
  difference is near it.
- *Samples* is the number of rounds that were measured. *One life*: each server was started and warmed once and served
  all rounds, so the interval tells how rounds differ, not how starts do. Without it each round had fresh servers.
"""
HEAD = ("row", "first", "second", "ratio (interval)", "verdict", "aim", "reached", "differs", "samples")


def write(folder: Path, *, only_check: bool = False) -> list[str]:
    """Write page and pictures of the runs in `folder/data`. Returns the names of files that changed (or would)."""
    changed = []
    for name, text in files(folder).items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            changed.append(name)
            if not only_check:
                path.write_text(text)
    return changed


def files(folder: Path) -> dict[str, str]:
    """File name -> text of the page and its pictures. Raises JournalError for a quick run."""
    found = list(journal.runs(folder / "data"))
    quick = [run.name for run in found if run.header["quick"]]
    if quick:
        raise JournalError(f"data/{quick[0]}.jsonl is of a quick run, whose figures say nothing; remove it")
    shown = next((run for run in reversed(found) if run.header["whole"]), None)
    parts = [TITLE + INTRO]
    out: dict[str, str] = {}
    if shown is None:
        parts.append(NO_RUN)
    else:
        parts.append(_summary(shown))
        parts.append(LEGEND)
        for section in shown.header["sections"]:
            body, svg = _section(shown, section)
            if body:
                name = f"{section.lower().replace(' ', '-').replace(',', '')}.svg"
                parts.append(f"## {section}\n\n{body}" + (f"\n![ratios with intervals]({name})\n" if svg else ""))
                out |= {name: svg} if svg else {}
        parts.append(_slots(shown))
        parts.append(_environment(shown))
    parts.append(_listed(found, shown))
    out["README.md"] = "\n".join(part for part in parts if part)
    return out


def number(value: float) -> str:
    """Three significant digits, with thousands separators."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


class Line:
    """One row for one pair of servers, with its verdict."""

    def __init__(self, run: Run, row: Row, pair: tuple[str, str], *, is_main: bool, one_life: bool = False) -> None:
        self.row, self.pair, self.is_main, self._one_life = row, pair, is_main, one_life
        self.first = run.values(row.name, pair[0])
        self.second = run.values(row.name, pair[1]) if pair[1] else {}
        pairs = ratios(self.first, self.second)
        self.ratio: Interval | None = median_interval(pairs) if pairs else None
        self.labels = [run.header["servers"][name]["label"] if name else "-" for name in pair]

    @property
    def verdict(self) -> str:
        """Better, within noise, worse, too few samples; empty without a second server."""
        return verdict(self.ratio, more_is_better=self.row.more_is_better) if self.ratio else ""

    @property
    def is_measured(self) -> bool:
        """Whether there are figures; a variant's line needs figures of both servers."""
        return bool((self.first or self.second) if self.is_main else self.ratio)

    def samples(self) -> str:
        """The number of rounds, and whether their servers lived over all of them."""
        count = self.ratio.count if self.ratio else len(self.first or self.second)
        return f"{count}, one life" if self._one_life else str(count)

    def reached(self) -> str:
        """Whether the aim is reached; empty without an aim or a figure."""
        if self.row.aim is None or not self.is_main:
            return ""
        if not self.row.absolute:
            return reaches(self.ratio, self.row.aim, more_is_better=self.row.more_is_better) if self.ratio else ""
        values = median_interval(list(self.first.values())) if self.first else None
        return reaches(values, self.row.aim, more_is_better=self.row.more_is_better) if values else ""

    def cells(self) -> list[str]:
        """The cells of the table."""
        row = self.row
        name = row.name if self.is_main else f"↳ {self.labels[0]} beside {self.labels[1]}"
        sign = "≥" if row.more_is_better else "≤"
        aim = f"{sign} {row.aim:.2g}" if row.aim is not None and self.is_main else ""
        ratio = self.ratio
        return [
            name,
            *(_shown(values, row.unit) for values in (self.first, self.second)),
            "-" if ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})",
            MARKS.get(self.verdict, "-"),
            f"{aim} {row.unit}" if aim and row.absolute else aim,
            self.reached(),
        ]


def _shown(values: dict[int, float], unit: str) -> str:
    return f"{number(statistics.median(values.values()))} {unit}" if values else "-"


def lines_of(run: Run, section: str) -> list[tuple[str, list[Line]]]:
    """Scenario -> its lines, for the scenarios of a section in order; rows without figures are left out."""
    found = []
    for name, scenario in run.header["scenarios"].items():
        rows = [row for row in scenario["rows"] if (row.get("section") or scenario["section"]) == section]
        if rows:
            lines = [
                Line(run, Row(**row), (pair[0], pair[1]), is_main=number == 0, one_life=scenario.get("one_life", False))
                for row in rows
                for number, pair in enumerate(scenario["pairs"])
            ]
            found.append((name, [line for line in lines if line.is_measured]))
    return found


def _section(run: Run, section: str) -> tuple[str, str]:
    """A section's table, remarks and picture; empty if none of its rows was measured."""
    groups = lines_of(run, section)
    lines = [line for _, group in groups for line in group]
    if not lines:
        return "", ""
    mains = [line for line in lines if line.is_main]
    heads = {tuple(line.labels) for line in mains if line.pair[1]} or {tuple(line.labels) for line in mains}
    first, second = next(iter(heads)) if len(heads) == 1 else ("first", "second")
    notes = list(dict.fromkeys(line.row.differs for line in mains if line.row.differs))
    marks = {what: f"({number})" for number, what in enumerate(notes, 1)}
    cells = [[*line.cells(), marks.get(line.row.differs, "") if line.is_main else "", line.samples()] for line in lines]
    body = grid([*HEAD[:1], first, second, *HEAD[3:]], cells)
    body += "".join(f"\n({number}) {what}.\n" for number, what in enumerate(notes, 1))
    bars = [(line.row.name, line.ratio, line.row.more_is_better, line.verdict) for line in mains if line.ratio]
    return body, picture.drawn(bars, first, second) if bars else ""


def _summary(run: Run) -> str:
    lines = [line for section in run.header["sections"] for _, group in lines_of(run, section) for line in group]
    mains = [line for line in lines if line.is_main]
    verdicts = [line.verdict for line in mains]
    aims = [line.reached() for line in mains if line.reached()]
    worse = [line.row.name for line in mains if line.verdict == WORSE]
    parts = [
        f"{run.header['rounds']} rounds, order shuffled by seed {run.header['seed']}.",
        f"Of {len(mains)} rows, {verdicts.count(BETTER)} are better, {verdicts.count(NOISE)} within noise, "
        f"{verdicts.count(WORSE)} worse.",
        f"{sum(a.startswith('yes') for a in aims)} of {len(aims)} aims are reached: see the column *reached*.",
    ]
    coverages = [line.ratio.coverage for line in mains if line.ratio]
    parts += [f"The intervals cover the median with {min(coverages):.1%} or more."] if coverages else []
    parts += ["Worse:" + "".join(f"\n    - {name}" for name in worse)] if worse else []
    whole = "".join(f"- {part}\n" for part in [*parts, *_mishaps(run)])
    return f"Run `{run.name}`, begun {run.header['begun_at']}:\n\n{whole}"


def _mishaps(run: Run) -> list[str]:
    """Steps that failed, were skipped, interrupted, disturbed or never steady."""
    ends = run.ends
    named = {
        "Failed": [_place(key) for key, end in ends.items() if end["kind"] == "failed"],
        "Skipped": sorted({f"{key[2]} ({end['why']})" for key, end in ends.items() if end["kind"] == "skipped"}),
        "Interrupted and begun again": [_place(key) for key, count in run.begun.items() if count > 1],
        "Not steady when measured": [_place(key) for key, end in ends.items() if _unsteady(end.get("detail", {}))],
    }
    parts = [f"{what}: {'; '.join(steps)}." for what, steps in named.items() if steps]
    if not run.finished:
        parts.append(f"The run is not finished: {len(run.left())} of {len(run.plan)} steps were not measured.")
    if not run.header["environment"]["was_quiet"]:
        parts.append("**The machine was busy when the run began.**")
    others = [end["others_cpu_s"] / end["seconds"] for end in ends.values() if end["kind"] == "sample"]
    if others:
        parts.append(
            f"Other processes and the kernel used {statistics.median(others):.0%} of one core in the median step, "
            f"{max(others):.0%} at most."
        )
    return parts


def _place(key: Key) -> str:
    return f"round {key[0]} {key[1]} {key[2]}"


def _unsteady(detail: Any) -> bool:
    """Whether `steady` is false anywhere in a detail."""
    if isinstance(detail, dict):
        return detail.get("steady") is False or any(_unsteady(value) for value in detail.values())
    return False


def _slots(run: Run) -> str:
    slots = run.header["slots"]
    if not slots:
        return ""
    return "## Planned, without a scenario\n\n" + grid(["row", "aim"], [[row, aim] for row, aim in slots.items()])


def _environment(run: Run) -> str:
    lines = [[key, _flat(value)] for key, value in run.header["environment"].items()]
    servers = run.header["servers"].values()
    lines += [[server["label"], _flat({**server["settings"], "options": server["options"]})] for server in servers]
    return "## Environment\n\n" + grid(["what", "value"], [[cell or "-" for cell in line] for line in lines])


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_flat(item)}" for key, item in value.items() if item not in ("", [], {}))
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _listed(found: list[Run], shown: Run | None) -> str:
    if not found:
        return ""
    lines = []
    for run in reversed(found):
        mains = [
            line for s in run.header["sections"] for _, group in lines_of(run, s) for line in group if line.is_main
        ]
        verdicts = [line.verdict for line in mains]
        state = "finished" if run.finished else f"{len(run.left())} of {len(run.plan)} steps left"
        lines.append(
            [
                f"[{run.name}](data/{run.name}.jsonl)" + (" (shown)" if run is shown else ""),
                run.header["begun_at"],
                run.header["environment"]["commit"][:10],
                "whole" if run.header["whole"] else "a part",
                state,
                *(str(verdicts.count(v)) for v in (BETTER, NOISE, WORSE)),
            ]
        )
    head = ["run", "begun", "commit", "protocol", "state", "better", "within noise", "worse"]
    return "## All runs\n\n" + grid(head, lines)
