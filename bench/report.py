"""What the samples say: tables for the terminal and for docs/benchmarks.md, and the plot.

The page is written between two marks; what stands around them is kept, so that the explanations of rows that fall
short live beside the table that says so.
"""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
from pathlib import Path

from bench.cluster import COMMIT, COMMITS_OF_MANY
from bench.scenarios import ROWS

Samples = dict[str, dict[str, list[float]]]
"""Row -> server -> a value a round."""
Table = list[list[str]]

HEAD = ["row", "ours", "Kafka 4.3.1", "ours/Kafka (spread)", "aim", "reached"]
SKELETON = (
    "# Benchmarks\n\n## One node\n\n{node}\n## A cluster\n\n{cluster}\n## A million partitions\n\n{metadata}\n"
    "## What the profile shows\n"
)


def ratios(samples: Samples) -> dict[str, dict[str, float]]:
    """Median, least and greatest ratio ours/Kafka a row, by pairs of one round."""
    out = {}
    for row, by_server in samples.items():
        pairs = [a / b for a, b in zip(by_server["ours"], by_server["kafka"], strict=True) if b > 0]
        if pairs:
            out[row] = {"median": statistics.median(pairs), "min": min(pairs), "max": max(pairs)}
    return out


def reached(row: str, ratio: float, ours: float) -> bool:
    """Whether the ratio, or our figure where the aim is one, is as good as what is aimed at."""
    value = ours if ROWS[row].absolute else ratio
    return value >= ROWS[row].aim if ROWS[row].more_is_better else value <= ROWS[row].aim


def table(samples: Samples) -> Table:
    """The rows as text: name, ours, Kafka, ratio with spread, aim, reached."""
    lines = []
    found = ratios(samples)
    for row in samples:
        ratio = found.get(row)
        if ratio is None and not ROWS[row].absolute:
            continue
        ours, kafka = (statistics.median(samples[row][s]) for s in ("ours", "kafka"))
        unit = ROWS[row].unit
        sign = "≥" if ROWS[row].more_is_better else "≤"
        lines.append(
            [
                row,
                f"{_number(ours)} {unit}",
                f"{_number(kafka)} {unit}",
                "-" if ratio is None else f"{ratio['median']:.2f} ({ratio['min']:.2f}-{ratio['max']:.2f})",
                f"{sign} {ROWS[row].aim:.2g}{f' {unit}' if ROWS[row].absolute else ''}",
                "yes" if reached(row, 0.0 if ratio is None else ratio["median"], ours) else "**no**",
            ]
        )
    return lines


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def codec_table(results: dict[str, dict[str, float]]) -> Table:
    """What `bench.codec` found, the head line first."""
    lines = [["message", "ours", "kafka-python", "times faster (least)", "aim", "reached"]]
    for name, r in results.items():
        lines.append(
            [
                name,
                f"{_number(r['ours_us'])} µs",
                f"{_number(r['theirs_us'])} µs",
                f"{r['ratio']:.1f} ({r['least']:.1f})",
                f"≥ {r['aim']:.2g}",
                "yes" if r["ratio"] >= r["aim"] else "**no**",
            ]
        )
    return lines


def image_table(cost: dict[str, float]) -> Table:
    """What `bench.image` found of the cost of one topic more, the head line first."""
    return [
        ["one topic of 10 partitions", "beside 1,000 topics", "beside 100,000 topics", "ratio", "aim", "reached"],
        [
            "planned, committed and removed again",
            f"{cost['small_us']:.0f} µs",
            f"{cost['large_us']:.0f} µs",
            f"{cost['ratio']:.2f}",
            f"≤ {cost['aim']}",
            "yes" if cost["ratio"] <= cost["aim"] else "**no**",
        ],
    ]


def grid(head: list[str], lines: Table) -> str:
    """A markdown table."""
    return "".join("| " + " | ".join(line) + " |\n" for line in [head, ["---"] * len(head), *lines])


def machine() -> str:
    """The class of machine, without its name."""
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return (
        f"a machine with {os.cpu_count()} cores ({platform.machine()}) and {pages * page / 2**30:.0f} GiB of memory, "
        f"{platform.system()}, Python {platform.python_version()}, Java {_java_version()}"
    )


def _java_version() -> str:
    """The version of the Java on the PATH; "unknown" if there is none."""
    if shutil.which("java") is None:
        return "unknown"
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.split('"')
    return said[1] if len(said) > 1 else "unknown"


def compared(samples: Samples, picture: str) -> str:
    """Table and picture, and how they came about."""
    lines = table(samples)
    rounds = sorted({len(by_server["ours"]) for by_server in samples.values()})
    short = [line[0] for line in lines if line[-1] != "yes"]
    parts = [
        f"Medians of {' to '.join(map(str, rounds))} interleaved rounds on {machine()}; the ratio is what counts, its "
        f"spread is over the rounds.\n{len(lines) - len(short)} of {len(lines)} rows reach their aim"
        + (f"; short of it: {'; '.join(short)}." if short else "."),
        grid(HEAD, lines),
        f"![times better than Apache Kafka]({picture})",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def parts_of_a_node(codecs: dict[str, dict[str, float]], image: dict[str, float]) -> str:
    """The tables that are not about servers."""
    parts = [
        "Codecs beside kafka-python, pure Python both, in the same run:",
        grid(*_split(codec_table(codecs))),
        "The metadata image, cost in proportion to the change:",
        grid(*_split(image_table(image))),
    ]
    return "\n" + "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def parts_of_a_cluster(samples: Samples, etcd: dict[str, float]) -> str:
    """Commits beside those of etcd, where there was one; no aim hangs on it."""
    if not etcd:
        return ""
    lines = []
    for row, key in ((COMMIT, "p50_ms"), (COMMITS_OF_MANY, "per_s")):
        unit = ROWS[row].unit
        figures = [statistics.median(samples[row][server]) for server in ("ours", "kafka")]
        lines.append([row, *(f"{_number(value)} {unit}" for value in (*figures, etcd[key]))])
    table = grid(["row", "ours", "Kafka 4.3.1", "etcd"], lines)
    return f"\nBeside three members of etcd, a put each (fsynced by a majority, as records of metadata are):\n\n{table}"


def parts_of_many(many: dict[str, float]) -> str:
    """What `bench.image.beside_many` found, in one process of ours."""
    rows = [
        (
            "1,000,000 partitions read from a snapshot, CPU time",
            f"{many['load_s']:.2f} s",
            "≤ 5 s",
            5.0,
            "load_s",
        ),
        ("kept a partition by the image (tracemalloc)", f"{many['kept']:.0f} bytes", "≤ 64 bytes", 64.0, "kept"),
        (
            "kept a partition besides, by which a controller finds those of a broker",
            f"{many['index']:.1f} bytes",
            f"≤ {64 - many['kept']:.0f} bytes",
            64 - many["kept"],
            "index",
        ),
        (
            "from leadership to CreateTopics acknowledged, 1,000,000 partitions against 10,000",
            f"{many['failover_ms']:.2f} ms, ratio {many['failover']:.2f}",
            "≤ 1.2",
            1.2,
            "failover",
        ),
    ]
    lines = [[name, shown, aim, "yes" if many[key] <= limit else "**no**"] for name, shown, aim, limit, key in rows]
    return f"\nOurs alone, in one process:\n\n{grid(['in one process of ours', 'figure', 'aim', 'reached'], lines)}"


def _split(lines: Table) -> tuple[list[str], Table]:
    return lines[0], lines[1:]


def _marks(group: str) -> tuple[str, str]:
    return f"<!-- {group}: begin -->", f"<!-- {group}: end -->"


def write_page(path: Path, group: str, body: str) -> None:
    """Put `body` between the group's marks and keep all else. Raises ValueError when the marks are gone."""
    marks = {name: "\n".join(_marks(name)) + "\n" for name in ("node", "cluster", "metadata")}
    page = path.read_text() if path.exists() else SKELETON.format(**marks)
    begin, end = _marks(group)
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"{path} has not the marks {begin} and {end}")
    path.write_text(f"{before}{begin}\n{body}{end}{after}")


def plot(samples: Samples, path: Path) -> None:
    """Ratios as bars, beyond 1 to the better side."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.fonttype"] = "none"  # text as text: a tenth of the size
    mpl.rcParams["svg.hashsalt"] = "bench"  # the same figures give the same file
    from matplotlib import pyplot as plt

    found = ratios(samples)
    better = {r: (x["median"] if ROWS[r].more_is_better else 1 / x["median"]) for r, x in found.items()}
    ours = {r: statistics.median(samples[r]["ours"]) for r in found}
    figure, axes = plt.subplots(figsize=(10, 0.3 * len(better) + 1.2), layout="constrained")
    colors = ["tab:green" if reached(r, found[r]["median"], ours[r]) else "tab:orange" for r in better]
    bars = axes.barh(list(better), [value - 1 for value in better.values()], left=1, color=colors)
    axes.bar_label(bars, [f" {value:.1f}x " for value in better.values()])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.margins(x=0.1)
    axes.invert_yaxis()
    axes.set_xlabel("times better than Apache Kafka 4.3.1, log scale (orange: short of the aim)")
    figure.savefig(path, metadata={"Date": None})
