"""The plugin that finds test files whose tests start foreign programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import peers

OWN = "import subprocess\ndef test_starts():\n    subprocess.run(['java'], check=True)\n"
FIXTURE = """
import pytest, subprocess

@pytest.fixture(scope="session")
def server():
    subprocess.run("kcat", shell=False, check=True)
"""
USER = "def test_uses(server):\n    pass\n"
NEITHER = "import subprocess\ndef test_starts_another():\n    subprocess.run(['true'], check=True)\n"


@pytest.mark.parametrize("workers", [0, 2])
def test_files_that_start_a_foreign_program_are_written_down(tmp_path: Path, workers: int) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("java", "kcat"):
        (programs / name).symlink_to("/bin/true")
    texts = {"conftest": FIXTURE, "test_own": OWN, "test_first_user": USER, "test_user": USER, "test_neither": NEITHER}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    target = tmp_path / "files"
    options = ["-p", "tests.foreign", "--foreign-files", str(target), "-n", str(workers), "--rootdir", str(tmp_path)]
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(peers.ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", *options, str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert target.read_text().split() == ["test_first_user.py", "test_own.py", "test_user.py"]
