"""Pictures of ratios with their intervals, as SVG text: the same figures give the same bytes on every machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from bench.report.intervals import BETTER, NOISE, WORSE, Interval

COLORS = {BETTER: "#1a7f37", NOISE: "#8c959f", WORSE: "#cf222e"}
OTHER = "#8c959f"
NAMES, PLOT, RIGHT, STEP, TOP = 430, 420, 70, 22, 40
"""Pixels: the width of names, plot and figures, the height of a row, the height of the head."""
Bar = tuple[str, Interval, bool, str]
"""Row name, ratio, whether more is better, verdict."""


def drawn(bars: Sequence[Bar], first: str, second: str) -> str:
    """One line per row, on a log scale; the ratio is oriented so that right of 1 is better for the first server."""
    turned = [(name, _turned(ratio, more_is_better), verdict) for name, ratio, more_is_better, verdict in bars]
    low = math.floor(min(0.0, *(math.log10(values[0]) for _, values, _ in turned)))
    high = math.ceil(max(0.01, *(math.log10(values[2]) for _, values, _ in turned)))
    height = TOP + STEP * len(turned) + 30
    width = NAMES + PLOT + RIGHT

    def x(value: float) -> float:
        return round(NAMES + PLOT * (math.log10(value) - low) / (high - low), 1)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{NAMES}" y="16">times better: {escape(_plain(f"{first} beside {second}"))}, log scale</text>',
    ]
    for power in range(low, high + 1):
        at = x(10.0**power)
        out.append(f'<line x1="{at}" y1="{TOP - 8}" x2="{at}" y2="{height - 26}" stroke="#d0d7de"/>')
        out.append(f'<text x="{at}" y="{height - 10}" text-anchor="middle" fill="#57606a">{10.0**power:g}</text>')
    out.append(f'<line x1="{x(1)}" y1="{TOP - 8}" x2="{x(1)}" y2="{height - 26}" stroke="black"/>')
    for at, (name, values, verdict) in enumerate(turned):
        y = TOP + STEP * at + STEP // 2
        color = COLORS.get(verdict, OTHER)
        out.append(f'<text x="{NAMES - 8}" y="{y + 4}" text-anchor="end">{escape(_cut(name))}</text>')
        out.append(
            f'<line x1="{x(values[0])}" y1="{y}" x2="{x(values[2])}" y2="{y}" stroke="{color}" stroke-width="3"/>'
        )
        out.append(f'<circle cx="{x(values[1])}" cy="{y}" r="5" fill="{color}"/>')
        out.append(f'<text x="{NAMES + PLOT + 8}" y="{y + 4}">{values[1]:.3g}x</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def _turned(ratio: Interval, more_is_better: bool) -> tuple[float, float, float]:
    """Low, median and high of the factor by which the first server is better."""
    if more_is_better:
        return ratio.low, ratio.median, ratio.high
    return 1 / ratio.high, 1 / ratio.median, 1 / ratio.low


def _cut(name: str, limit: int = 68) -> str:
    return name if len(name) <= limit else name[: limit - 1] + "…"


def _plain(label: str) -> str:
    return label.replace("`", "")
