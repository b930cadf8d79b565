"""One server a target and test process, and the table of outcomes.

`pytest tests/compat --matrix docs/compatibility.md` writes the table from the run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.targets import Apache, Ours, Target
from tests.peer import require_peer

SERVERS = {"kraftcluster": Ours, "apache": Apache}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cluster" in metafunc.fixturenames:
        marked = [pytest.param(n, marks=pytest.mark.xdist_group(f"compat-{n}")) for n in SERVERS]
        metafunc.parametrize("server_name", marked, scope="session", indirect=False)


@pytest.fixture(scope="session")
def cluster(server_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A running server, shared by the tests of a process; tests use topics and groups of their own."""
    if server_name == "apache":
        require_peer()
    target = SERVERS[server_name](server_name, tmp_path_factory.mktemp(server_name))
    target.start()
    yield target
    target.stop()


@pytest.fixture
def make_target(tmp_path: Path) -> Iterator[Callable[..., Target]]:
    """Makes servers of one's own: `make_target("kraftcluster", **{"log.dirs": …})`; stopped at the end."""
    made: list[Target] = []

    def make(server_name: str, folder: str = "server", **overrides: str) -> Target:
        if server_name == "apache":
            require_peer()
        target = SERVERS[server_name](server_name, tmp_path / folder, overrides)
        made.append(target)
        return target

    yield make
    for target in made:
        target.kill()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic or group name that no other test uses."""
    plain = "".join(c if c.isalnum() else "-" for c in request.node.name).strip("-")
    return f"{plain[:80]}-{os.getpid()}"
