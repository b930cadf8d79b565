"""Judges and draws a run."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.samples import LatencySample, NodeSample, Sampler

GROWTH_MAX = 1.25
"""How much more the last life of a node may take than its second one; the first has still empty logs."""
WHOLE_LIFE = 0.6
"""Of the longest life: shorter lives are not compared."""
Value = Callable[[NodeSample], float]
KINDS: dict[str, tuple[Value, float]] = {
    "memory": (lambda sample: sample.anonymous_bytes / 2**20, 8.0),
    "descriptors": (lambda sample: float(sample.descriptors), 20.0),
    "disk": (lambda sample: sample.disk_bytes / 2**20, 32.0),
}
"""What has to stay flat: the value in the unit of the picture, and growth that is never too much."""


@dataclass
class Result:
    """The figures and findings of a run."""

    minutes: float
    records: int = 0
    """Acknowledged."""
    copied: int = 0
    """Records of committed transactions, as read."""
    transactions: int = 0
    findings: list[str] = field(default_factory=list)
    growth: list[tuple[int, str, float, float]] = field(default_factory=list)
    """Node, kind, and the peaks of its second and last life."""
    latencies: list[tuple[str, float, float]] = field(default_factory=list)
    """Kind, and the median of the windows' p99 in the first and last third, rolls left out."""
    rolls: int = 0

    @property
    def good(self) -> bool:
        return not self.findings

    def text(self) -> str:
        """A report for people."""
        lines = [
            f"{self.minutes:.0f} minutes, {self.rolls} rolls: {self.records:,} records acknowledged, "
            f"{self.transactions:,} transactions, {self.copied:,} copies read"
        ]
        lines += [f"node {node}: {kind} {before:.0f} -> {after:.0f}" for node, kind, before, after in self.growth]
        lines += [] if self.growth else ["growth is not judged: no node has three whole lives"]
        lines += [f"{kind}: p99 {first:.1f} -> {last:.1f} ms" for kind, first, last in self.latencies]
        return "\n".join([*lines, *self.findings, "nothing found" if self.good else f"{len(self.findings)} findings"])


def judge(result: Result, sampler: Sampler) -> None:
    """Compare the lives of each node, and the latencies of the first and the last third of the run.

    A node with fewer than three whole lives is not compared.
    """
    if sampler.failure is not None or not sampler.nodes:
        result.findings.append(f"not sampled: {sampler.failure!r}")
    lives: dict[int, dict[int, list[NodeSample]]] = defaultdict(lambda: defaultdict(list))
    for sample in sampler.nodes:
        lives[sample.node_id][sample.pid].append(sample)
    for node_id, by_pid in sorted(lives.items()):
        longest = max(_seconds(life) for life in by_pid.values())
        whole = [life for life in by_pid.values() if _seconds(life) >= WHOLE_LIFE * longest]
        if len(whole) < 3:
            continue
        before, after = whole[1], whole[-1]
        for kind, (value, slack) in KINDS.items():
            peaks = max(map(value, before)), max(map(value, after))
            result.growth.append((node_id, kind, *peaks))
            if peaks[1] > max(peaks[0] * GROWTH_MAX, peaks[0] + slack):
                result.findings.append(f"grows: {kind} of node {node_id}: from {peaks[0]:.0f} to {peaks[1]:.0f}")
    for kind in sorted({sample.kind for sample in sampler.latencies}):
        calm = [s for s in sampler.latencies if s.kind == kind and s.count and not _in_roll(s, sampler.rolls)]
        third = len(calm) // 3
        if third:
            result.latencies.append(
                (kind, _middle(s.p99_ms for s in calm[:third]), _middle(s.p99_ms for s in calm[-third:]))
            )


def _seconds(life: list[NodeSample]) -> float:
    return life[-1].at_s - life[0].at_s


def _in_roll(sample: LatencySample, rolls: Iterable[tuple[float, float]]) -> bool:
    return any(begin <= sample.at_s <= end + 10 for begin, end in rolls)


def _middle(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def draw(sampler: Sampler, target: Path) -> None:
    """An SVG: memory, descriptors, disk and processor time of each node, and latencies; rolls are shaded."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "soak"
    figure, axes = pyplot.subplots(5, 1, figsize=(10, 14), sharex=True, layout="constrained")
    by_node: dict[int, list[NodeSample]] = defaultdict(list)
    for sample in sampler.nodes:
        by_node[sample.node_id].append(sample)
    titles = {"memory": "RssAnon, MiB", "descriptors": "open descriptors", "disk": "files, MiB"}
    for axis, (kind, (value, _)) in zip(axes, KINDS.items(), strict=False):
        for node_id, samples in sorted(by_node.items()):
            axis.plot([s.at_s / 60 for s in samples], [value(s) for s in samples], label=str(node_id), linewidth=1)
        axis.set_ylabel(titles[kind])
        axis.set_ylim(bottom=0)
    for node_id, samples in sorted(by_node.items()):
        axes[3].plot(*_cpu(samples), label=str(node_id), linewidth=1)
    axes[3].set_ylabel("cores in use")
    axes[0].legend(title="node", ncols=6, fontsize="small")
    for kind in sorted({sample.kind for sample in sampler.latencies}):
        some = [s for s in sampler.latencies if s.kind == kind and s.count]
        axes[4].plot([s.at_s / 60 for s in some], [s.p99_ms for s in some], label=f"{kind}, p99", linewidth=1)
    axes[4].set_ylabel("milliseconds")
    axes[4].set_yscale("log")
    axes[4].legend(fontsize="small")
    axes[4].set_xlabel("minutes; shaded: rolls")
    for axis in axes:
        for begin, end in sampler.rolls:
            axis.axvspan(begin / 60, end / 60, color="#d0d7de", alpha=0.5, linewidth=0)
    figure.savefig(target, metadata={"Date": None})
    pyplot.close(figure)


def _cpu(samples: list[NodeSample]) -> tuple[list[float], list[float]]:
    """Minutes and the cores in use between samples of the same process."""
    pairs: list[tuple[Any, Any]] = [(a, b) for a, b in itertools.pairwise(samples) if a.pid == b.pid]
    return [b.at_s / 60 for _, b in pairs], [(b.cpu_s - a.cpu_s) / (b.at_s - a.at_s) for a, b in pairs]
