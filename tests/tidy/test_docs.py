"""The documents name modules where they are."""

from __future__ import annotations

import re

from tests.tidy.sources import ROOT, python_files

PATH = re.compile(r"`((?:[\w-]+/)+\w+\.py)`")


def _unknown(text: str) -> list[str]:
    """The paths of Python files in a text that are the end of no file's path."""
    return [path for path in PATH.findall(text) if not any(f"/{name}".endswith(f"/{path}") for name in python_files())]


def test_every_python_file_that_a_page_names_exists() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "e2e").rglob("*.md")]
    assert {
        str(page.relative_to(ROOT)): _unknown(page.read_text()) for page in pages if _unknown(page.read_text())
    } == {}


def test_a_file_that_has_moved_is_found() -> None:
    assert _unknown("`raft/node.py`, `raft/nowhere.py` and `node.py`") == ["raft/nowhere.py"]
