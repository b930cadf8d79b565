"""Files that import each other form no circles, imports for types included: each file is read after those it needs.

A part of something large takes a narrow protocol of what it needs (`seams.py`, or beside the part), not the whole. The
list of circles only shrinks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tests.tidy.sources import PRODUCTS, python_files, tree

KNOWN: dict[str, int] = {
    # File whose name comes first, and the number of files.
    # One state machine: a role handles messages, and each message may end it; so roles and transitions name each other.
    "kraft_node.raft.election": 15,
}


def _modules() -> dict[str, ast.Module]:
    """The modules of all products, by the names that import them."""
    found: dict[str, ast.Module] = {}
    for name in python_files():
        for root in PRODUCTS:
            if name.startswith(root):
                module = name.removeprefix(root).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
                found[module] = tree(name)
    return found


def _imports(module: ast.Module, names: Mapping[str, object]) -> Iterator[str]:
    """The modules in `names` that a module imports, anywhere and for any purpose."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in names:
                    yield full
                elif node.module in names:
                    yield node.module


def _circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """The largest sets of modules in which each is reached from each (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for other in imports[name]:
            if other not in order:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], order[other])
        if lowest[name] == order[name]:
            place = stack.index(name)
            circle, stack[place:] = stack[place:], []
            if len(circle) > 1:
                found.append(sorted(circle))

    for name in imports:
        if name not in order:
            visit(name)
    return sorted(found)


def _problems(circles: list[list[str]], known: Mapping[str, int]) -> list[str]:
    sizes = {circle[0]: len(circle) for circle in circles}
    found = [f"these import each other: {', '.join(one)}" for one in circles if len(one) > known.get(one[0], 0)]
    found += [
        f"{name} is the first of {sizes.get(name, 0)} files: correct the list"
        for name, size in known.items()
        if sizes.get(name, 0) < size
    ]
    return found


def test_imports_form_no_circles() -> None:
    modules = _modules()
    imports = {name: set(_imports(module, modules)) - {name} for name, module in modules.items()}
    assert _problems(_circles(imports), KNOWN) == []


def test_the_check_of_circles_finds_violations() -> None:
    names = {"p": None, "p.a": None, "p.b": None}
    one = ast.parse("if TYPE_CHECKING:\n    from p.b import B\n")
    two = ast.parse("def f():\n    from p import a\n")
    assert (list(_imports(one, names)), list(_imports(two, names))) == (["p.b"], ["p.a"])
    circles = _circles({"d": {"a"}, "a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert circles == [["a", "b", "c"]]
    assert (len(_problems(circles, {})), len(_problems(circles, {"a": 2}))) == (1, 1)
    assert _problems(circles, {"a": 3}) == []
    assert len(_problems([], {"a": 3})) == 1
