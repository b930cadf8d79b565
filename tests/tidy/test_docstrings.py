"""Docstrings name things as they are called, and a package that lists its modules lists all of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Final

from tests.tidy.sources import PRODUCTS, ROOT, python_files, text, tree

BLOCK: Final = re.compile(r'"""[\s\S]*?"""')
NAME: Final = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)*)(?:\(\))?`")
LISTS: Final = 3
"""A package whose docstring names so many of its modules has a list of them."""
FOREIGN: Final = frozenset(
    {"ErrorsPerSec", "MaxValue", "X500Principal", "getName", "hashCode", "maxProperties"}
    | {"SPARK_JAVA_OPT_0", "StreamingQueryProgress"}
)
"""Names of Java, Spark, Kafka and Kubernetes that nothing here has."""


def _words() -> set[str]:
    """All words in the repository's code without docstrings, in its schemas, settings and pages."""
    code = [BLOCK.sub("", text(name)) for name in python_files()]
    others = [ROOT / "Makefile", ROOT / "pyproject.toml", *(ROOT / "docs").rglob("*.md")]
    others += [path for root in PRODUCTS for path in (ROOT / root).rglob("*.ks")]
    names = (part.removesuffix(".py") for name in python_files() for part in PurePosixPath(name).parts)
    found = set(names)
    for source in (*code, *(path.read_text(encoding="utf-8") for path in others)):
        found.update(re.findall(r"\w+", source))
    return found


def _unknown(docstrings: Iterable[str], known: set[str]) -> list[str]:
    """The names in docstrings that have a part which is no known word."""
    found = (name for docstring in docstrings for name in NAME.findall(docstring))
    return [name for name in found if not known.issuperset(name.split("."))]


def test_every_name_in_a_docstring_exists() -> None:
    known = _words() | FOREIGN
    unknown = {
        name: found
        for name in python_files()
        if name.startswith(PRODUCTS) and (found := _unknown(BLOCK.findall(text(name)), known))
    }
    assert unknown == {}


def test_a_name_that_has_changed_is_found() -> None:
    docstrings = ["Calls `open_log`, `Log.read()` and `Log.raed`.", "`kafka-storage format` is no name."]
    assert _unknown(docstrings, {"open_log", "Log", "read"}) == ["Log.raed"]


def _missing(docstring: str, modules: Iterable[str]) -> Iterator[str]:
    """The modules that a docstring leaves out, if it names some."""
    here = sorted(modules)
    if sum(f"`{name}`" in docstring for name in here) >= LISTS:
        yield from (name for name in here if not re.search(rf"\b{name}\b", docstring))


def test_a_list_of_modules_is_complete() -> None:
    modules: dict[str, set[str]] = {}
    for name in python_files():
        path = PurePosixPath(name.removesuffix("/__init__.py").removesuffix(".py"))
        if name.startswith(PRODUCTS) and not path.name.startswith("_"):
            modules.setdefault(str(path.parent), set()).add(path.name)
    missing = {}
    for folder, here in modules.items():
        package = f"{folder}/__init__.py"
        if package in python_files() and (left := [*_missing(ast.get_docstring(tree(package)) or "", here)]):
            missing[package] = left
    assert missing == {}


def test_a_module_that_a_list_leaves_out_is_found() -> None:
    assert [*_missing("`a` reads, `b` and `c` write.", ["a", "b", "c", "d"])] == ["d"]
    assert [*_missing("`a` reads.", ["a", "d"])] == []
