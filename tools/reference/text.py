"""Markdown that every generated page needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """`text` in one cell of a table: one line, with nothing that ends the cell or begins a tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def code(text: str) -> str:
    """`text` as code in a cell. Empty text stays empty."""
    return "`" + " ".join(text.split()).replace("|", "\\|") + "`" if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; empty if it has no rows."""
    lines = ["| " + " | ".join(row) + " |\n" for row in rows]
    return "| " + " | ".join(head) + " |\n|" + "---|" * len(head) + "\n" + "".join(lines) if lines else ""


def generated(title: str, source: str) -> str:
    """The head of a page that is written from `source`."""
    return f"# {title}\n\nThis page is generated from {source} by `python -m tools.reference`.\n\n"
