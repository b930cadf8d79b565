"""Prove that a range of commits changes words alone: compare the syntax trees of its Python files without docstrings.

    python -m tools.same_code                  # main..HEAD
    python -m tools.same_code OLD NEW          # two commits
    python -m tools.same_code OLD NEW --texts  # list the string literals that differ, too

String literals of messages may differ; all other code must be equal. Comments are not part of a syntax tree. Returns 1
and names the files if code differs, or if a Python file exists in one commit only.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from dataclasses import dataclass, field


@dataclass
class Comparison:
    """Differences between two commits: files with different code, and pairs of differing string literals."""

    differing: list[str] = field(default_factory=list)
    texts: list[tuple[str, str, str]] = field(default_factory=list)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


class _Words(ast.NodeTransformer):
    """Removes docstrings, collects the string literals, and replaces each by a placeholder."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        return self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        parts = [part for part in node.values if not isinstance(part, ast.Constant)]
        self.found.append(ast.unparse(node))
        return ast.Call(ast.Name("text"), [self.visit(part) for part in parts], [])

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not isinstance(node.value, str):
            return node
        self.found.append(node.value)
        return ast.Call(ast.Name("text"), [], [])


def shape(source: str) -> tuple[str, list[str]]:
    """The code of a file without docstrings and with placeholders for strings, and the strings in order."""
    words = _Words()
    tree = words.visit(ast.parse(source))
    return ast.dump(tree), words.found


def compare(old: str, new: str) -> Comparison:
    """Compare the Python files that differ between two commits."""
    result = Comparison()
    for line in _git("diff", "--name-status", "--no-renames", old, new, "--", "*.py").splitlines():
        status, name = line.split("\t")
        if status != "M":
            result.differing.append(f"{name} ({'added' if status == 'A' else 'removed'})")
            continue
        before, texts_before = shape(_git("show", f"{old}:{name}"))
        after, texts_after = shape(_git("show", f"{new}:{name}"))
        if before != after:
            result.differing.append(name)
        else:
            pairs = zip(texts_before, texts_after, strict=True)
            result.texts += [(name, left, right) for left, right in pairs if left != right]
    return result


def main(argv: list[str] | None = None) -> int:
    """Compare, print, and return 0 if only words differ, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tools.same_code", description=__doc__.split("\n", 1)[0])
    parser.add_argument("old", nargs="?", default="main", help="commit before the changes")
    parser.add_argument("new", nargs="?", default="HEAD", help="commit after the changes")
    parser.add_argument("--texts", action="store_true", help="list the string literals that differ")
    asked = parser.parse_args(argv)
    found = compare(asked.old, asked.new)
    for name in found.differing:
        print(f"code differs: {name}")
    print(f"{len(found.differing)} files with different code, {len(found.texts)} string literals that differ")
    if asked.texts:
        for name, before, after in found.texts:
            print(f"{name}\n  - {before!r}\n  + {after!r}")
    return 1 if found.differing else 0


if __name__ == "__main__":
    sys.exit(main())
