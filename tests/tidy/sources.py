"""The Python files of the repository, parsed once for all tidy tests."""

from __future__ import annotations

import ast
import gc
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PRODUCTS: Final = ("node/src/", "operator/src/", "pipeline/src/", "protocol/src/", "cli/src/")
"""Where code that is shipped begins."""


@cache
def python_files() -> tuple[str, ...]:
    """Every Python file that git tracks or would track, by its path below the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    return tuple(sorted({name for name in listed if name and (ROOT / name).is_file()}))


@cache
def text(name: str) -> str:
    """The source of a file."""
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def tree(name: str) -> ast.Module:
    """The syntax tree of a file."""
    parsed = ast.parse(text(name))
    gc.freeze()  # all trees stay; collections that look through them cost twice as much as parsing
    return parsed
