"""Both servers behind a wire, for faults that a client and a broker must share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.targets import Apache, Ours, Target
from tests.faults.wire import Wire


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Wire()
    yield made
    made.close()


@pytest.fixture(params=[Ours, pytest.param(Apache, marks=[pytest.mark.peer, pytest.mark.slow])])
def target(request: pytest.FixtureRequest, wire: Wire, tmp_path: Path) -> Iterator[Target]:
    """A server that clients reach over the wire."""
    made: Target = request.param("server", tmp_path, {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{wire.port}"})
    wire.target = made.port
    made.start()
    yield made
    made.kill()
