"""Tables in pages that people write: the text between two marks is replaced, all else stays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.runs import environment


def grid(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "".join("| " + " | ".join(line) + " |\n" for line in [head, ["---"] * len(head), *lines])


def machine(folder: Path) -> str:
    """The class of this machine and its programs; `folder` holds the servers' data."""
    found = environment.described(folder)
    return f"{found['cpu']}, {found['memory_gib']} GiB, {found['kernel']}, Python {found['python']}, {found['java']}"


def write(path: Path, mark: str, body: str) -> None:
    """Put `body` between the marks `<!-- mark: begin -->` and `<!-- mark: end -->` of a page.

    Raises ValueError if the page lacks them.
    """
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, has_begin, rest = path.read_text().partition(begin)
    _, has_end, after = rest.partition(end)
    if not has_begin or not has_end:
        raise ValueError(f"{path} lacks the marks {begin} and {end}")
    path.write_text(f"{before}{begin}\n{body}{end}{after}")
