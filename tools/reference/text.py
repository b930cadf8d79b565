"""Markdown helpers for generated pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """`text` as one table cell: one line, with escaped characters that would end the cell or begin a tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def code(text: str) -> str:
    """`text` as code in a cell. Empty text stays empty."""
    return "`" + " ".join(text.split()).replace("|", "\\|") + "`" if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; empty if it has no rows."""
    lines = ["| " + " | ".join(row) + " |\n" for row in rows]
    return "| " + " | ".join(head) + " |\n|" + "---|" * len(head) + "\n" + "".join(lines) if lines else ""


def generated(title: str, source: str) -> str:
    """The head of a page generated from `source`."""
    return f"# {title}\n\nThis page is generated from {source} by `python -m tools.reference`.\n\n"
