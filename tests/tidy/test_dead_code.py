"""Shipped functions, methods and classes have a caller outside the tests.

A name counts as used if it occurs anywhere in the products, tools, benchmarks or end-to-end tests, besides its own
definition: as a name, an attribute, an import, a keyword, or a string. The check therefore misses dead code that shares
its name with live code. What it finds is dead, or called by a library.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

from tests.tidy.sources import PRODUCTS, python_files, tree

USERS = (*PRODUCTS, "tools/", "bench/", "e2e/")

CALLED_BY_LIBRARIES = {
    "_cat": "the shell, by the name of its command",
    "_tree": "the shell, by the name of its command",
    "_ls": "the shell, by the name of its command",
    "_cd": "the shell, by the name of its command",
    "_pwd": "the shell, by the name of its command",
    "_history": "the shell, by the name of its command",
    "_help": "the shell, by the name of its command",
    "_man": "the shell, by the name of its command",
    "initialOffset": "PySpark's data sources",
    "getDefaultReadLimit": "PySpark's data sources",
    "reportLatestOffset": "PySpark's data sources",
    "streamReader": "PySpark's data sources",
    "streamWriter": "PySpark's data sources",
    "_build_manifest_evaluator": "PyIceberg",
    "_build_delete_files_partition_predicate": "PyIceberg",
    "new_input": "PyIceberg",
    "new_output": "PyIceberg",
    "to_input_file": "PyIceberg",
    "commit_table": "PyIceberg",
    "do_GET": "http.server",
    "log_message": "http.server",
    "seekable": "io",
    "readinto": "io",
    "model_post_init": "pydantic",
    "behind_latest": "users: docs/pipeline.md",
    "MetadataFrames": "users: docs/explanation/archive.md",
    "emit": "logging",
    "_missing_": "enum",
}
"""Name -> what calls it."""

DEAD = {
    "gauges": "the metrics of the group coordinator",
    "fetch_version": "Kafka limits Fetch between brokers by metadata.version; compared with its table",
    "list_offsets_version": "Kafka limits ListOffsets between brokers by metadata.version; compared with its table",
}
"""Name -> what will call it. This list only shrinks: use the code, or remove it with its tests."""


def _defined(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Name and place of every function, method and class, without `__names__` and those that a decorator registers."""
    for name in names:
        for node in ast.walk(tree(name)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                registered = any(isinstance(one, ast.Call) for one in node.decorator_list)
                if not registered and not (node.name.startswith("__") and node.name.endswith("__")):
                    yield node.name, f"{name}:{node.lineno}"


def _used(trees: Iterable[ast.AST]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in trees:
        for node in ast.walk(one):
            if isinstance(node, ast.Name):
                found[node.id] += 1
            elif isinstance(node, ast.Attribute):
                found[node.attr] += 1
            elif isinstance(node, ast.alias):
                found[node.name.rpartition(".")[2]] += 1
            elif isinstance(node, ast.keyword) and node.arg:
                found[node.arg] += 1
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
                found.update(node.value.replace(":", ".").split("."))
    return found


@cache
def _unused() -> dict[str, str]:
    used = _used(tree(name) for name in python_files() if name.startswith(USERS))
    products = [name for name in python_files() if name.startswith(PRODUCTS)]
    return {name: place for name, place in _defined(products) if not used[name]}


def test_shipped_code_has_a_caller() -> None:
    known = CALLED_BY_LIBRARIES.keys() | DEAD.keys()
    assert {name: place for name, place in _unused().items() if name not in known} == {}, "remove it with its tests"


def test_the_list_of_dead_code_only_shrinks() -> None:
    assert sorted(DEAD.keys() - _unused().keys()) == [], "used or gone: take it off the list"


def test_the_check_of_dead_code_finds_an_unused_function() -> None:
    source = ast.parse("def f(): pass\ndef g(): pass\nx.f()\n")
    assert [name for name in ("f", "g") if not _used([source])[name]] == ["g"]
