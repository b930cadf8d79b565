"""Boxes, arrows and text as SVG. Lengths are pixels; x grows to the right, y downwards."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

STYLE: Final = """\
<style>
  svg { --paper: #ffffff; --ink: #1f2430; --soft: #5b6475; --line: #8a94a6; --group: #f3f5f9;
        --plain: #e8ecf4; --warm: #fde3cf; --cool: #d9e8fb; --good: #dcefdc; }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #1b1e27; --ink: #e6e9f0; --soft: #a5aebf; --line: #7c869a; --group: #232733;
          --plain: #323847; --warm: #5a3a22; --cool: #24405f; --good: #2b4a31; }
  }
  text { font: 14px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--ink); }
  .title { font-weight: 600; }
  .small { font-size: 12px; fill: var(--soft); }
  .paper { fill: var(--paper); }
  .group { fill: var(--group); stroke: var(--line); stroke-dasharray: 4 4; }
  .plain { fill: var(--plain); } .warm { fill: var(--warm); } .cool { fill: var(--cool); } .good { fill: var(--good); }
  .box { stroke: var(--line); }
  .arrow { stroke: var(--soft); stroke-width: 1.6; fill: none; }
  .tip { fill: var(--soft); }
  .label { font-size: 12px; fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 5px; }
</style>
"""


class Box(NamedTuple):
    """A rectangle at which arrows begin and end."""

    x: float
    y: float
    width: float
    height: float

    @property
    def center(self) -> tuple[float, float]:
        """The point in the middle, as (x, y)."""
        return self.x + self.width / 2, self.y + self.height / 2

    def edge(self, to: tuple[float, float], shift: tuple[float, float] = (0, 0)) -> tuple[float, float]:
        """The point where the line from the centre (moved by `shift`) to the point `to` leaves the box."""
        x, y = self.center[0] + shift[0], self.center[1] + shift[1]
        dx, dy = to[0] - x, to[1] - y
        sides = [
            ((self.x + self.width if dx > 0 else self.x) - x) / dx if dx else float("inf"),
            ((self.y + self.height if dy > 0 else self.y) - y) / dy if dy else float("inf"),
        ]
        share = min(sides)
        return x + dx * share, y + dy * share


class Picture:
    """Collects shapes in painting order."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = width, height
        self._title = title
        self._shapes: list[str] = []

    def group(self, x: float, y: float, width: float, height: float, title: str) -> Box:
        """A dashed frame with its title at the top left."""
        self._rectangle(x, y, width, height, "group")
        self.text(x + 14, y + 22, title, "title", "start")
        return Box(x, y, width, height)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        title: str,
        lines: Sequence[str] = (),
        kind: str = "plain",
    ) -> Box:
        """A box with a title and smaller lines below it, centred."""
        self._rectangle(x, y, width, height, f"box {kind}")
        top = y + height / 2 - len(lines) * 8 + 5
        self.text(x + width / 2, top, title, "title")
        for number, line in enumerate(lines, 1):
            self.text(x + width / 2, top + 17 * number, line, "small")
        return Box(x, y, width, height)

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "middle") -> None:
        """One line of text; `y` is its base line."""
        shown = f' class="{style}"' if style else ""
        self._shapes.append(f'<text x="{x:g}" y="{y:g}"{shown} text-anchor="{anchor}">{escape(text)}</text>')

    def arrow(
        self, start: Box, end: Box, label: str = "", *, shift: float = 0, both: bool = False, at: float = 0.5
    ) -> None:
        """A straight arrow between two boxes, moved `shift` pixels to its right; the label is at the fraction `at` of
        its length."""
        (x1, y1), (x2, y2) = start.center, end.center
        length = max(((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5, 1)
        aside = (-(y2 - y1) / length * shift, (x2 - x1) / length * shift)
        begin = start.edge((x2 + aside[0], y2 + aside[1]), aside)
        finish = end.edge((x1 + aside[0], y1 + aside[1]), aside)
        self.line([begin, finish], label, both=both, at=at)

    def line(
        self, points: Sequence[tuple[float, float]], label: str = "", *, both: bool = False, at: float = 0.5
    ) -> None:
        """An arrow along points; the label stands on its first part."""
        path = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        tips = ' marker-end="url(#tip)"' + (' marker-start="url(#tip)"' if both else "")
        self._shapes.append(f'<path class="arrow" d="M{path}"{tips}/>')
        if label:
            (x1, y1), (x2, y2) = points[:2]
            self.text(x1 + (x2 - x1) * at, y1 + (y2 - y1) * at + 4, label, "label")

    def raw(self, shape: str) -> None:
        """Add any other shape."""
        self._shapes.append(shape)

    def svg(self) -> str:
        """The text of the SVG file."""
        width, height = self._size
        tip = (
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path class="tip" d="M0 0 L10 5 L0 10 z"/></marker></defs>\n'
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">\n'
            f"<title>{escape(self._title)}</title>\n"
            "<!-- Drawn by `python -m tools.diagrams`; do not edit. -->\n"
            f"{STYLE}{tip}"
            f'<rect class="paper" width="{width}" height="{height}" rx="10"/>\n'
            + "\n".join(self._shapes)
            + "\n</svg>\n"
        )

    def _rectangle(self, x: float, y: float, width: float, height: float, style: str) -> None:
        self._shapes.append(f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8"/>')
