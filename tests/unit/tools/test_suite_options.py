"""The pytest that runs kafka-python's suite: the tests keep their order, and random names differ from test to test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.compat.clients.test_kafka_python_suite import OPTIONS

SUITE = """
import random
import pytest

@pytest.mark.parametrize("number", range(20))
def test_names(number):
    print("name", number, random.random())
"""


def test_the_suite_is_not_shuffled_and_its_names_are_random(tmp_path: Path) -> None:
    (tmp_path / "test_names.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", *OPTIONS, "-s", "test_names.py"]
    env = {key: text for key, text in os.environ.items() if not key.startswith("PYTEST")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split("name ")[1].split() for line in done.stdout.splitlines() if "name " in line]
    assert [int(number) for number, _ in rows] == list(range(20))
    assert len({name for _, name in rows}) == 20
