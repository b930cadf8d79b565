"""The report as plots and as a self-contained HTML file."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kraft_pipeline.archive.health import Health
from kraft_pipeline.archive.skew import Load, Skew

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EVENTS_SHOWN: Final = 200
_STYLE: Final = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#1b1f24}"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}"
    "td:first-child,th:first-child{text-align:left}img{max-width:100%}h2{margin-top:2em}"
    ".bad{color:#b42318;font-weight:600}.good{color:#1a7f37;font-weight:600}"
)
_BLUE, _RED, _GREEN, _GREY = "#2563eb", "#dc2626", "#16a34a", "#94a3b8"


def plots(health: Health, skew: Skew) -> dict[str, bytes]:
    """PNG files by name. Raises ImportError without matplotlib."""
    times = np.array(health.times, "datetime64[ms]")
    partitions = _figure("Partitions that were not as they should be")
    axes = partitions.subplots()
    axes.step(times, health.under_replicated, where="pre", color=_BLUE, label="under-replicated")
    axes.step(times, health.offline, where="pre", color=_RED, label="offline")
    axes.legend()
    changes = _figure("Leaders that moved, ISRs that changed")
    axes = changes.subplots()
    axes.step(times, health.leader_moves, where="pre", color=_BLUE, label="leader moves")
    axes.step(times, health.isr_shrinks, where="pre", color=_RED, label="ISR shrinks")
    axes.step(times, health.isr_expansions, where="pre", color=_GREEN, label="ISR expansions")
    axes.legend()
    load = _figure("Load by broker")
    axes = load.subplots()
    names = [b.name for b in skew.brokers]
    axes.bar(names, [b.replicas for b in skew.brokers], color=_GREY, label="replicas")
    axes.bar(names, [b.leaders for b in skew.brokers], color=_BLUE, label="leaders", width=0.5)
    axes.legend()
    return {"partitions": _png(partitions), "changes": _png(changes), "load": _png(load)}


def _figure(title: str) -> Figure:
    from matplotlib.figure import Figure  # noqa: PLC0415 - most commands do without it

    made = Figure(figsize=(11, 3.2), layout="constrained")
    made.suptitle(title, fontsize=11)
    return made


def _png(figure: Figure) -> bytes:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=0, top=max(1, axes.get_ylim()[1]))  # draw zeros as a line at the bottom
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110)
    return out.getvalue()


def html(name: str, health: Health, skew: Skew, pictures: dict[str, bytes]) -> str:
    """The report as an HTML page."""
    verdicts = [
        (health.offline_now, "partitions are offline"),
        (health.under_replicated_now, "partitions are under-replicated"),
        (skew.not_preferred, "partitions are not led by their preferred replica"),
    ]
    body = [
        f"<h1>{escape(name)}</h1>",
        f"<p>Offsets {health.first_offset} to {health.last_offset} of the metadata log, "
        f"{_when(health.times[0]) if health.times else ''} to {_when(health.times[-1]) if health.times else ''}. "
        f"{health.partitions:,} partitions, {len(skew.brokers)} brokers.</p><ul>",
        *(f'<li class="{"bad" if n else "good"}">{n:,} {what}</li>' for n, what in verdicts),
        "</ul><h2>Over time</h2>",
        *(_picture(pictures, one) for one in ("partitions", "changes")),
        "<h2>Load</h2>",
        f"<p>The broker with most replicas has {skew.replicas_ratio:.2f} times the average, the broker with most"
        f" leaders {skew.leaders_ratio:.2f} times.</p>",
        _picture(pictures, "load"),
        _table(Load._fields, skew.brokers),
        "<h3>By rack</h3>" + _table(("rack", *Load._fields[3:]), [(r.name, *r[3:]) for r in skew.racks])
        if skew.racks
        else "",
        "<h2>Brokers</h2>",
        _table(
            ("broker", "flaps", "fenced for, s", "events"),
            [(n, b.flaps, round(b.fenced_ms / 1000, 1), len(b.events)) for n, b in sorted(health.brokers.items())],
        ),
        _table(("time", "offset", "broker", "what"), _events(health)),
        "<h2>Active controllers</h2>",
        _table(("time", "offset", "epoch", "controller"), [(_when(t), o, e, n) for o, t, e, n in health.controllers]),
        "<h2>Partitions with the most leader moves</h2>",
        _table(("topic", "partition", "moves"), health.moved_most),
        "<h2>Partitions with the most ISR shrinks</h2>",
        _table(("topic", "partition", "shrinks"), health.churned_most),
    ]
    head = f'<meta charset="utf-8"><title>{escape(name)}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'


def _events(health: Health) -> list[tuple[Any, ...]]:
    """The last events of all brokers."""
    found = [(o, t, n, what) for n, broker in health.brokers.items() for o, t, what in broker.events]
    return [(_when(t), o, n, what) for o, t, n, what in sorted(found)[-EVENTS_SHOWN:]]


def _when(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _picture(pictures: dict[str, bytes], name: str) -> str:
    raw = base64.b64encode(pictures[name]).decode()
    return f'<p><img alt="{escape(name)}" src="data:image/png;base64,{raw}"></p>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(text.replace('_', ' '))}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(_text(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _text(cell: Any) -> str:
    if cell is None:
        return "unknown"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
