"""The places of a source file that can be mutated, and their mutants."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

SWAPPED: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
}
OTHER_END = {"min": "max", "max": "min", "any": "all", "all": "any"}
FOR_PEOPLE = {"__repr__", "__str__", "describe"}
"""Functions whose results only people read."""


class Mutant(NamedTuple):
    """A wrong change at one place."""

    file: str
    """Relative to the package."""
    function: str
    """The qualified name."""
    kind: str
    """What was done: `comparison`, `condition`, `logic`, `number`, `arithmetic`, `extreme`, `deletion` or `result`."""
    number: int
    """Counts the mutants of one kind in one function, from 0."""
    line: int
    start: int
    """Position in the file, in bytes of UTF-8."""
    end: int
    old: str
    new: str

    @property
    def name(self) -> str:
        """Stays the same while its function does."""
        return f"{self.file}:{self.function}:{self.kind}:{self.number}"

    def plant(self, source: str) -> str:
        """The source with the change."""
        data = source.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


def mutants_of(file: str, source: str) -> list[Mutant]:
    """All mutants of a file, in the order of their places."""
    found: list[Mutant] = []
    seen: Counter[tuple[str, str]] = Counter()
    places = _Places(source)
    for function, kind, node, new in _functions(ast.parse(source), ""):
        start, end = places.of(node)
        old = places.data[start:end].decode()
        if new == old:
            continue
        number = seen[function, kind]
        seen[function, kind] += 1
        found.append(Mutant(file, function, kind, number, node.lineno, start, end, old, new))
    return found


class _Places:
    """Converts lines and columns of syntax nodes to positions in the file."""

    def __init__(self, source: str) -> None:
        self.data = source.encode()
        self._lines = [0]
        for line in self.data.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def of(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None, "a parsed node has an end"
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset


Site = tuple[str, str, "ast.expr | ast.stmt", str]
"""Function, kind, node to replace, new text."""


def _functions(tree: ast.AST, prefix: str) -> Iterator[Site]:
    """The sites in all functions; code of modules and classes defines names, and is left alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in FOR_PEOPLE:
            for statement in node.body:
                yield from _sites(statement, f"{prefix}{node.name}")


def _sites(node: ast.AST, function: str) -> Iterator[Site]:
    if _is_left_alone(node):
        return
    for kind, place, new in _mutations(node):
        yield function, kind, place, new
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _sites(child, function)


def _is_left_alone(node: ast.AST) -> bool:
    """Laws, messages, log lines and docstrings: their mutants are found by nobody or at once."""
    if isinstance(node, ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Expr):
        node = node.value
    if isinstance(node, ast.Call):
        called = node.func
        return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "logger"
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _mutations(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """What can be done to this node itself: kind, node to replace, new text."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in SWAPPED:
            swapped = ast.Compare(node.left, [SWAPPED[type(operator)]], node.comparators)
            yield "comparison", node, f"({ast.unparse(swapped)})"
        case ast.BoolOp():
            other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
            yield "logic", node, f"({ast.unparse(ast.BoolOp(other, node.values))})"
        case ast.UnaryOp(op=ast.Not()):
            yield "logic", node, f"({ast.unparse(node.operand)})"
        case ast.BinOp(op=ast.Add() | ast.Sub()) if not (_is_text(node.left) or _is_text(node.right)):
            other_sign = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            yield "arithmetic", node, f"({ast.unparse(ast.BinOp(node.left, other_sign, node.right))})"
        case ast.Constant(value=bool()):
            pass  # keyword arguments and results; see Return
        case ast.Constant(value=int(value)):
            yield "number", node, str(value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in OTHER_END:
            yield "extreme", node.func, OTHER_END[name]
        case ast.If() | ast.IfExp() if not _binds_names(node.test):
            yield "condition", node.test, "True"
            yield "condition", node.test, "False"
        case ast.Return(value=ast.Constant(value=bool(value))):
            yield "result", node, f"return {not value}"
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete() | ast.Raise():
            yield "deletion", node, "pass"
        case ast.Assign(targets=targets) if all(isinstance(t, ast.Attribute | ast.Subscript) for t in targets):
            yield "deletion", node, "pass"
        case ast.AugAssign():
            yield "deletion", node, "pass"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _binds_names(test: ast.expr) -> bool:
    """Whether the test has a walrus: without it a name would be missing, which any run finds."""
    return any(isinstance(node, ast.NamedExpr) for node in ast.walk(test))
