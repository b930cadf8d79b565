"""House rules that no linter knows."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.compat import matrix
from tests.peer import CI

ROOT = Path(__file__).parents[2]
NODE = ROOT / "node" / "src" / "kraft_node"
PROTOCOL = ROOT / "protocol" / "src" / "kraft_protocol"

# Modules that would let a core read the real world. Cores use base.env; runtime/ makes it, cli/ is a separate program,
# testing/ simulates.
WORLD = {
    "asyncio",
    "multiprocessing",
    "random",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
}
WORLD_CALLS = {"open", "input", "print"}
FREE = ("runtime", "cli", "testing")
DRIVERS = ("client/aio.py", "client/blocking.py", "client/cluster.py", "client/properties.py", "sasl/token_endpoint.py")
"""What of the protocol has sockets and clocks."""


def _tracked(pattern: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


def _core_files() -> list[Path]:
    files = [p for p in sorted(NODE.rglob("*.py")) if p.relative_to(NODE).parts[0] not in FREE]
    return files + [
        path for path in sorted(PROTOCOL.rglob("*.py")) if not str(path.relative_to(PROTOCOL)).startswith(DRIVERS)
    ]


def _forbidden(path: Path) -> list[str]:
    where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            names = []
        found += [f"{where}:{node.lineno} imports {n}" for n in names if n.split(".")[0] in WORLD]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WORLD_CALLS:
            found.append(f"{where}:{node.lineno} calls {node.func.id}()")
    return found


def test_the_cores_reach_the_world_only_through_env() -> None:
    assert [line for path in _core_files() for line in _forbidden(path)] == []


def test_the_check_of_imports_finds_violations(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text("import time\nfrom socket import socket\nprint(open('x'))\n")
    assert [line.split(" ", 1)[1] for line in _forbidden(sample)] == [
        "imports time",
        "imports socket",
        "calls print()",
        "calls open()",
    ]


# Files that may catch every exception, how often, and what they do with it. All other code passes exceptions on.
CATCH_ALL = {
    "base/calls.py": (1, "raised again once all have been called"),
    "base/turns.py": (1, "handed to the job's owner as its outcome"),
    "server/quorum/context.py": (1, "the fatal boundary: commits, snapshots, background jobs"),
    "server/quorum/driver.py": (1, "the fatal boundary: steps and effects"),
    "controller/controller.py": (1, "periodic work: counted as a fault, done again when it is due"),
    "metadata/snapshot_writer.py": (1, "handed to the snapshot's owner, for whom it is fatal"),
    "server/connections/connection.py": (1, "the request gets UNKNOWN_SERVER_ERROR"),
    "broker/handlers/produce.py": (1, "the connection is closed"),
    "base/long_answers.py": (1, "the request gets UNKNOWN_SERVER_ERROR"),
    "broker/coordinators/runtime/loader.py": (1, "handed to the runtime: the load has failed"),
    "broker/coordinators/runtime/shard.py": (1, "the operation fails, its partition is loaded again"),
    "broker/pieces.py": (1, "the piece of the request gets UNKNOWN_SERVER_ERROR"),
    "server/channels/local_channel.py": (1, "the request gets UNKNOWN_SERVER_ERROR"),
    "server/connections/context.py": (1, "the connection is closed"),
    "server/sasl/login.py": (1, "handed to the login, which refuses the client"),
    "server/tls/tls_transport.py": (1, "the connection is closed"),
    "server/monitoring/monitoring_server.py": (1, "the request gets 503"),
    "log/compaction/cleaner.py": (1, "the pass over one log ends; what nobody expected is raised again"),
    "runtime/net.py": (3, "the connection is closed"),
    "runtime/loop.py": (2, "the loop is nobody's: a callback that raises is logged, and the others go on"),
    "runtime/background.py": (1, "handed to the job's owner as its result"),
}


def _catches_all(source: str) -> int:
    """The number of handlers that catch any exception and do not raise it again."""
    broad = {"Exception", "BaseException"}
    found = 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler):
            named = {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)} if node.type else broad
            found += bool(named & broad) and not isinstance(node.body[-1], ast.Raise)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            found += any(isinstance(arg, ast.Name) and arg.id in broad for arg in node.args)
    return found


def test_no_exception_is_swallowed_outside_the_reviewed_places() -> None:
    found = {
        str(path.relative_to(root)): count
        for root in (NODE, PROTOCOL)
        for path in sorted(root.rglob("*.py"))
        if path.relative_to(root).parts[0] != "testing" and (count := _catches_all(path.read_text()))
    }
    assert found == {path: count for path, (count, _) in CATCH_ALL.items()}


def test_the_check_of_swallowed_exceptions_finds_violations() -> None:
    assert _catches_all("try: f()\nexcept Exception: pass") == 1
    assert _catches_all("try: f()\nexcept (OSError, BaseException) as e: log(e)") == 1
    assert _catches_all("try: f()\nexcept: pass") == 1
    assert _catches_all("with contextlib.suppress(Exception): f()") == 1
    assert _catches_all("try: f()\nexcept Exception as e:\n  undo()\n  raise X from e") == 0
    assert _catches_all("try: f()\nexcept OSError: pass") == 0


@pytest.mark.parametrize(
    "package",
    [str(p.parent.relative_to(ROOT)) for root in (NODE, PROTOCOL) for p in sorted(root.glob("*/__init__.py"))],
)
def test_every_package_opens_with_an_essay(package: str) -> None:
    doc = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text()))
    assert doc, package
    assert len(doc.split()) >= 10, f"{package}/__init__.py says too little"


def test_no_package_shadows_the_standard_library() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_no_file_has_unfinished_words() -> None:
    words = ("TO" + "DO", "FIX" + "ME", "X" + "XX", "NotImplemented" + "Error")
    found = [
        f"{p.relative_to(ROOT)}:{n}: {line.strip()}"
        for p in _tracked("*.py")
        for n, line in enumerate(p.read_text().split("\n"), 1)
        if any(w in line for w in words)
    ]
    assert found == []


def test_digits_of_a_text_are_those_that_int_accepts() -> None:
    """`isdigit` is true for ², which `int` refuses."""
    found = [
        f"{p.relative_to(ROOT)}:{n}: {line.strip()}"
        for p in _tracked("*/src/*.py")
        if "testing" not in p.parts
        for n, line in enumerate(p.read_text().split("\n"), 1)
        if ".isdigit()" in line and "isascii()" not in line and p.name != "pages.py"  # of bytes
    ]
    assert found == []


def test_no_file_names_a_path_of_one_machine() -> None:
    needles = ("/wo" + "rk/", "/tm" + "p/w/", "/root" + "/")
    found = [
        f"{p.relative_to(ROOT)}: {needle}"
        for p in _tracked("*")
        if p.suffix in {".py", ".md", ".toml", ".java", ".properties", ".txt", ""} and p.name != "LICENSE"
        for needle in needles
        if needle in p.read_text(errors="replace")
    ]
    assert found == []


def test_the_page_of_compatibility_lists_every_test_of_clients() -> None:
    there = matrix.read(ROOT / "docs" / "compatibility.md")
    tests = matrix.expected()
    assert set(there) - set(tests) == set(), "rows without a test: run `make matrix`"
    missing = [row for row in tests if row not in there]
    how = "run `make matrix`, or tests/compat/ROOM/test_….py alone with --matrix docs/compatibility.md"
    if missing and not CI:
        pytest.skip(f"{len(missing)} tests have no row yet, which fails in CI: {how}")
    assert missing == [], how


def test_the_page_of_compatibility_has_no_failure() -> None:
    there = matrix.read(ROOT / "docs" / "compatibility.md")
    assert [
        row for row, cells in there.items() if any(c.startswith((matrix.FAILED, matrix.SKIPPED)) for c in cells)
    ] == []


def test_the_page_of_compatibility_has_each_section_once() -> None:
    lines = (ROOT / "docs" / "compatibility.md").read_text().split("\n")
    sections = [line for line in lines if line.startswith("## ")]
    assert len(sections) == len(set(sections)), "sections of several files are one section: run `make matrix`"


def _tests_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_each_section_about_the_drafts_names_the_tests_of_its_file() -> None:
    page = (ROOT / "docs" / "kips.md").read_text()
    for path in sorted((ROOT / "tests" / "kip").glob("test_*.py")):
        section = page.partition(f"`tests/kip/{path.name}`")[2].partition("\n##")[0]
        named = set(re.findall(r"`(test_\w+)`", section))
        assert named == _tests_in(path), f"docs/kips.md and {path.name} differ"


def test_every_test_that_the_page_of_the_drafts_names_exists() -> None:
    page = (ROOT / "docs" / "kips.md").read_text()
    there = set().union(*(_tests_in(path) for path in (ROOT / "tests").rglob("test_*.py")))
    files = {path.stem for path in (ROOT / "tests" / "kip").glob("test_*.py")}
    assert set(re.findall(r"\b(test_\w+)", page)) - there - files == set()


@pytest.mark.xdist_group("tidy")
def test_groups_of_tests_reach_the_workers(request: pytest.FixtureRequest) -> None:
    """Some combinations of pytest and xdist lose them silently: each worker then starts every group's servers."""
    if request.config.getoption("loadgroup", default=False):
        assert request.node.nodeid.endswith("@tidy")
