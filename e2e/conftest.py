"""The operator is installed once for all tests; every file has its own cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.kube import Cluster, install_operator

TEST_S_MAX = 1200
"""The deadlines inside a test come first, and name the expected condition."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_S_MAX))


@pytest.fixture(scope="session")
def operator() -> Iterator[None]:
    """The installed operator; it stays, and the next run uses it."""
    install_operator()
    yield


@pytest.fixture(scope="module")
def cluster(operator: None, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The sample under the test file's name, settled."""
    one = Cluster(request.module.__name__.rpartition("test_")[2].replace("_", "-"))
    one.delete()
    one.apply()
    one.settle()
    yield one
    one.delete()
