"""Java's own clients: one program of many steps, whose lines are those that Apache Kafka's answers give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.compat.targets import Target
from tests.compat.tools import SOURCE
from tests.peer import run_java

CLIENT = "Apache Kafka's Java clients"
pytestmark = pytest.mark.peer

GOLDEN = Path(__file__).parents[1] / "golden" / "compat" / "client_tour.txt"


def test_admin_producers_consumers_and_groups_step_by_step(cluster: Target) -> None:
    said = run_java(str(SOURCE.with_name("ClientTour.java")), cluster.bootstrap, "tour").stdout.decode()
    lines = [line for line in said.splitlines() if not re.match(r"\d{4}-\d\d-\d\dT", line)]  # logs of the clients
    assert lines == GOLDEN.read_text().splitlines()
