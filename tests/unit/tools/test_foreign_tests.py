"""The plugin that finds tests that depend on foreign programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import peers

OWN = """
import pytest, subprocess

@pytest.mark.xdist_group("mine")
@pytest.mark.parametrize("program", ["java", "true"])
def test_starts(program):
    subprocess.run([program], check=True)
"""
FIXTURE = """
import pytest, subprocess

@pytest.fixture(scope="session")
def server():
    subprocess.run("kcat", shell=False, check=True)
"""
USER = "def test_uses(server):\n    pass\n\ndef test_does_not_use():\n    pass\n"
LOOKS = """
import shutil
from tools import peers

def test_looks_for_a_program():
    shutil.which("go")

def test_looks_for_another():
    shutil.which("make")

def test_looks_for_kafka():
    peers.installed()
"""
FOUND = [
    "test_first_user.py::test_uses",
    "test_looks.py::test_looks_for_a_program",
    "test_looks.py::test_looks_for_kafka",
    "test_own.py::test_starts[java]",
    "test_user.py::test_uses",
]


@pytest.mark.parametrize("workers", [0, 2])
def test_tests_that_depend_on_a_foreign_program_are_written_down(tmp_path: Path, workers: int) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("java", "kcat"):
        (programs / name).symlink_to("/bin/true")
    texts = {"conftest": FIXTURE, "test_own": OWN, "test_first_user": USER, "test_user": USER, "test_looks": LOOKS}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    target = tmp_path / "tests"
    options = ["-p", "tests.foreign", "--foreign-tests", str(target), "-n", str(workers), "--rootdir", str(tmp_path)]
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(peers.ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "--dist", "loadgroup", *options, str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert target.read_text().splitlines() == FOUND
