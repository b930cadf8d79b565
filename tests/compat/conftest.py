"""One server for each target and test process, and the table of outcomes.

`pytest tests/compat --matrix docs/compatibility.md` writes the table from the run (tests/compat/matrix.py).
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat import matrix
from tests.compat.targets import Apache, Ours, Target
from tests.spark import spark

__all__ = ["spark"]

SERVERS = {matrix.OURS: Ours, matrix.APACHE: Apache}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--matrix", metavar="FILE", default=None, help="write what passed against whom to FILE")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("matrix", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(MatrixWriter(Path(config.getoption("matrix"))), "compat-matrix")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the name of the test's row to its report, so that reports of xdist's workers carry it."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(Path(__file__).parent):
            params = item.callspec.params if hasattr(item, "callspec") else {}
            own = getattr(item.cls, "CLIENT", None) or getattr(item.module, "CLIENT", None)
            client = own or matrix.title(item.path.stem)
            what = matrix.title(str(params.get("foreign", item.originalname)))
            item.user_properties.append(("compat", [client, what, params.get("server_name", matrix.OURS)]))


class MatrixWriter:
    """Collects the outcomes of a run and writes the page when it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes = matrix.Outcomes()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or (report.when == "setup" and not report.passed):
            properties: dict[str, Any] = dict(report.user_properties)
            if "compat" in properties:
                client, what, target = properties["compat"]
                self._outcomes.add(matrix.Row(client, what), target, self._outcome(report))

    @staticmethod
    def _outcome(report: pytest.TestReport) -> str:
        if report.skipped:
            return matrix.NOT_YET if hasattr(report, "wasxfail") else matrix.SKIPPED
        return matrix.PASSED if report.passed else matrix.FAILED

    def pytest_sessionfinish(self) -> None:
        matrix.write(self._path, self._outcomes)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test against both servers.

    A foreign client against Apache Kafka judges only the test itself, which the product cannot change: it is slow.
    Modules whose client is ours have `BOTH_EVERY_DAY`.
    """
    if "server_name" in metafunc.fixturenames:
        prefix = getattr(metafunc.module, "XDIST_GROUP", "compat")
        both = getattr(metafunc.module, "BOTH_EVERY_DAY", False)
        marks = {matrix.OURS: (), matrix.APACHE: () if both else (pytest.mark.slow,)}
        marked = [pytest.param(n, marks=(pytest.mark.xdist_group(f"{prefix}-{n}"), *marks[n])) for n in SERVERS]
        metafunc.parametrize("server_name", marked, scope="session", indirect=False)


@pytest.fixture(scope="session")
def cluster(server_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A running server, shared by the tests of a process; tests use topics and groups of their own."""
    target = SERVERS[server_name](server_name, tmp_path_factory.mktemp(server_name))
    target.start()
    yield target
    target.stop()


@pytest.fixture
def make_target(tmp_path: Path) -> Iterator[Callable[..., Target]]:
    """Makes servers for a single test: `make_target("kraftcluster", **{"log.dirs": …})`; stopped at the end."""
    made: list[Target] = []

    def make(server_name: str, folder: str = "server", **overrides: str) -> Target:
        target = SERVERS[server_name](server_name, tmp_path / folder, overrides)
        made.append(target)
        return target

    yield make
    for target in made:
        target.kill()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic or group name that no other test uses."""
    whole = f"{request.cls.__name__ if request.cls else ''}-{request.node.name}"
    plain = "".join(c if c.isalnum() else "-" for c in whole).strip("-")
    return f"{plain[:72]}-{zlib.crc32(whole.encode()):08x}-{os.getpid()}"  # long names differ at their ends
