"""Clusters of a single test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.members import MakeMembers, Members


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeMembers]:
    """Makes clusters of separate processes (`Members`), which are stopped at the end of the test."""
    made: list[Members] = []

    def build(controllers: tuple[str, ...], brokers: tuple[str, ...], **settings: Any) -> Members:
        made.append(Members(tmp_path, controllers, brokers, **settings))
        return made[-1]

    yield build
    for members in made:
        members.stop()
