"""One name, one thing: classes of a package, modules beside the standard library, imports that resolve."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from tests.tidy.sources import PRODUCTS, python_files, tree

FIRST_PARTY = ("kraft_", "tests", "tools", "bench", "e2e")


def _module(name: str) -> str:
    """The name that imports a file."""
    for root in PRODUCTS:
        name = name.removeprefix(root)
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _package_of(name: str) -> str:
    """The product of a file; the command line, the operator and local processes are one."""
    return name.partition("/src/")[0]


def _repeated_classes(trees: Mapping[str, ast.Module]) -> dict[tuple[str, str], list[str]]:
    """Files of each public class of a product that has the name of another class there."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, module in trees.items():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[_package_of(name), node.name].append(name)
    return {key: files for key, files in found.items() if len(files) > 1}


def _products() -> dict[str, ast.Module]:
    return {name: tree(name) for name in python_files() if name.startswith(PRODUCTS)}


def test_a_product_has_no_two_classes_of_one_name() -> None:
    assert _repeated_classes(_products()) == {}


def test_no_module_of_a_product_has_a_name_of_the_standard_library() -> None:
    stems = {name: PurePosixPath(_module(name).replace(".", "/")).name for name in _products()}
    assert [name for name, stem in stems.items() if stem in sys.stdlib_module_names] == []


def _bound(body: Iterable[ast.stmt]) -> Iterator[str]:
    """The names that statements of a module bind, at any depth outside functions and classes."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0]
        else:
            yield from (one.id for one in ast.walk(node) if isinstance(one, ast.Name))
            yield from _bound(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))


def _unresolved(name: str, module: ast.Module, names: Mapping[str, set[str]]) -> Iterator[str]:
    """Imports of first-party names that do not exist. `names`: what each first-party module binds."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith(FIRST_PARTY) and alias.name not in names:
                    yield f"{name}:{node.lineno}: no module {alias.name}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(FIRST_PARTY) and not node.level:
            source = node.module or ""
            known = names.get(source)
            if known is None or "__getattr__" in known:
                if source not in names:
                    yield f"{name}:{node.lineno}: no module {source}"
                continue
            for alias in node.names:
                if alias.name not in known and f"{source}.{alias.name}" not in names:
                    yield f"{name}:{node.lineno}: {source} has no {alias.name}"


def _unresolved_attributes(name: str, module: ast.Module, names: Mapping[str, set[str]]) -> Iterator[str]:
    """Attributes of imported first-party modules that do not exist. Skips modules whose name the file binds again."""
    modules: dict[str, str] = {}
    bound_again: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in names and alias.name not in names.get(node.module or "", ()):
                    modules[alias.asname or alias.name] = full
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound_again.add(node.id)
        elif isinstance(node, ast.arg):
            bound_again.add(node.arg)
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and not node.attr.startswith("__"):
            source = modules.get(node.value.id)
            if source is None or node.value.id in bound_again or "__getattr__" in names[source]:
                continue
            if node.attr not in names[source] and f"{source}.{node.attr}" not in names:
                yield f"{name}:{node.lineno}: {source} has no {node.attr}"


def test_our_own_names_resolve_where_they_are_used() -> None:
    """mypy does not check tests, tools and benchmarks that are outside its list."""
    names = {_module(name): set(_bound(tree(name).body)) for name in python_files()}
    for module in list(names):
        for parent in PurePosixPath(module.replace(".", "/")).parents:
            names.setdefault(str(parent).replace("/", "."), set())
    for check in (_unresolved, _unresolved_attributes):
        assert [line for name in python_files() for line in check(name, tree(name), names)] == []


def test_the_checks_of_names_find_violations() -> None:
    one, two = "node/src/kraft_node/a.py", "node/src/kraft_node/b.py"
    source = ast.parse("class A: pass\nclass _B: pass\n")
    assert list(_repeated_classes({one: source, two: source})) == [("node", "A")]
    names = {"kraft_node.a": {"A"}}
    wrong = ast.parse("import kraft_node.b\nfrom kraft_node.a import A, C\nfrom kraft_node.c import D\nimport os\n")
    assert len(list(_unresolved(two, wrong, names))) == 3
    wrong = ast.parse("from kraft_node import a\na.A()\na.C()\n")
    assert len(list(_unresolved_attributes(two, wrong, names))) == 1
