"""The table of outcomes: what each client does against us and against Apache Kafka, from a run of tests/compat.

`tests/compat/conftest.py` collects the outcomes of a run and writes the page with `write`. `tests/tidy` compares the
committed page with `expected`, which reads the test files without running them.

The suites of clients' projects have a row each, whose cells `python -m tests.suites --record` writes to a file. Any
other row is a test function; its parameters are counted. The row's section is the constant `CLIENT` of its class or
module, or else the module's name. A run of some tests replaces only the rows of these tests.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

FOLDER = Path(__file__).parent
SUITES = FOLDER.parent / "suites" / "outcomes.toml"
OF_SUITES = "The suites of clients' projects"
ABOUT_SUITES = (
    "",
    "Run by `make suites SUITE=name`. With `-secured`, all clients use TLS and SASL and authenticate again every ten",
    "seconds; with `-chaos`, each connection ends after a second. Reasons of known failures are in `tests/suites`.",
)
OURS, APACHE = "kraftcluster", "apache"
ONLY_OURS = "(ours only)"
PASSED, FAILED, SKIPPED, NOT_YET = "passed", "failed", "skipped", "not yet"


class Row(NamedTuple):
    """The key of a row: its section and its test."""

    client: str
    what: str


def title(function: str) -> str:
    """`test_deletes_records` -> `deletes records`."""
    return function.removeprefix("test_").replace("_", " ")


def expected(folder: Path = FOLDER) -> list[Row]:
    """The rows of all tests in the folder and its rooms, in the order of the files' names; then those of suites."""
    files = sorted(folder.rglob("test_*.py"), key=lambda path: path.name)
    rows = [row for path in files for row in _rows(path, ast.parse(path.read_text()))]
    return [*rows, *of_suites()] if folder == FOLDER else rows


def of_suites() -> dict[Row, tuple[str, str]]:
    """The rows of the suites of clients' projects, with their cells."""
    found = tomllib.loads(SUITES.read_text())
    return {
        Row(OF_SUITES, name): (cells.get(OURS, NOT_YET), cells.get(APACHE, ONLY_OURS)) for name, cells in found.items()
    }


def _rows(path: Path, module: ast.Module) -> Iterator[Row]:
    client = _constant(module, "CLIENT") or title(path.stem)
    foreign = _constant(module, "FOREIGN_TESTS")
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            own = _constant(node, "CLIENT") or client
            yield from (Row(str(own), title(f.name)) for f in node.body if _is_test(f))
        elif _is_test(node):
            if foreign and any(a.arg == "foreign" for a in node.args.args):
                yield from (Row(str(client), title(name)) for name in foreign)
            else:
                yield Row(str(client), title(node.name))


def _is_test(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")


def _constant(body: ast.Module | ast.ClassDef, name: str) -> Any:
    for node in body.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return ast.literal_eval(node.value)
    return None


class Outcomes:
    """The outcomes of a run."""

    def __init__(self) -> None:
        self._seen: dict[Row, dict[str, list[str]]] = {}

    def add(self, row: Row, target: str, outcome: str) -> None:
        self._seen.setdefault(row, {}).setdefault(target, []).append(outcome)

    def cells(self) -> dict[Row, tuple[str, str]]:
        """The two cells of each row."""
        return {row: (_cell(by.get(OURS)), _cell(by.get(APACHE))) for row, by in self._seen.items()}


def _cell(outcomes: list[str] | None) -> str:
    if not outcomes:
        return ONLY_OURS
    best = outcomes.count(PASSED)
    if best == len(outcomes):
        return PASSED if best == 1 else f"{PASSED} ({best})"
    worst = next(kind for kind in (FAILED, NOT_YET, SKIPPED) if kind in outcomes)
    return worst if len(outcomes) == 1 else f"{worst} ({best} of {len(outcomes)} passed)"


def write(path: Path, outcomes: Outcomes, folder: Path = FOLDER) -> None:
    """Write the page; keep the rows of tests that did not run."""
    old = read(path) if path.exists() else {}
    cells = {**old, **outcomes.cells(), **of_suites()}
    rows = [row for row in dict.fromkeys(expected(folder)) if row in cells]
    path.write_text(_page({row: cells[row] for row in rows}))


def read(path: Path) -> dict[Row, tuple[str, str]]:
    """The rows of a page."""
    client = ""
    found = {}
    for line in path.read_text().split("\n"):
        if line.startswith("## "):
            client = line.removeprefix("## ")
        elif match := re.fullmatch(r"\| (.+?) \| (.+?) \| (.+?) \|", line):
            what, ours, apache = match.groups()
            if what not in ("what", "---"):
                found[Row(client, what)] = (ours, apache)
    return found


def _page(cells: dict[Row, tuple[str, str]]) -> str:
    ours = [c[0] for c in cells.values()]
    theirs = [c[1] for c in cells.values() if c[1] != ONLY_OURS]
    lines = [
        "# Compatibility",
        "",
        "What clients and tools do against kraftcluster and against Apache Kafka 4.3.1 with the same configuration.",
        "`make matrix` writes this page from a run of [tests/compat](../tests/compat); a test without its row fails",
        "`make check`. A number in brackets counts variants (compressions, assignors, …); “not yet” is a feature that",
        "the [roadmap](roadmap.md) lists.",
        "",
        f"Rows: {len(cells)}. Against us: {_count(ours)}. Against Apache Kafka: {_count(theirs)} of {len(theirs)}.",
        "",
        "| client or tool | version |",
        "| --- | --- |",
        *(f"| {name} | {version} |" for name, version in versions()),
    ]
    for client in dict.fromkeys(row.client for row in cells):  # several files may add to a section
        lines += [
            "",
            f"## {client}",
            *(ABOUT_SUITES if client == OF_SUITES else ()),
            "",
            "| what | kraftcluster | Apache Kafka 4.3.1 |",
            "| --- | --- | --- |",
        ]
        lines += [f"| {row.what} | {our} | {their} |" for row, (our, their) in cells.items() if row.client == client]
    return "\n".join(lines) + "\n"


def _count(cells: list[str]) -> str:
    good = sum(cell.startswith(PASSED) for cell in cells)
    return f"{good} passed"


def versions() -> list[tuple[str, str]]:
    """The clients and their versions on this machine."""
    found = [("Apache Kafka's Java tools and clients", "4.3.1"), ("Java", _said("java", "-version"))]
    found += [(name, metadata.version(name)) for name in ("confluent-kafka", "kafka-python", "aiokafka")]
    return [*found, ("kcat", _said("kcat", "-V")), *_pinned()]


def _pinned() -> Iterator[tuple[str, str]]:
    """The clients in Go and JavaScript, with the versions that their files here pin."""
    go = (FOLDER / "clients/go/go.mod").read_text()
    yield from re.findall(r"^\t\S+/(franz-go|sarama|kafka-go) v(\S+)$", go, re.MULTILINE)
    yield from json.loads((FOLDER / "clients/js/package.json").read_text())["dependencies"].items()


def _said(program: str, flag: str) -> str:
    """The first version number in a program's output, followed by librdkafka's if it is named."""
    if shutil.which(program) is None:
        return "not on the machine of the last run"
    done = subprocess.run([program, flag], capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    own = re.search(r"\d+(\.\d+)+", text)
    library = re.search(r"librdkafka (\d+(?:\.\d+)+)", text)
    return (own.group() if own else "?") + (f" (librdkafka {library.group(1)})" if library else "")
