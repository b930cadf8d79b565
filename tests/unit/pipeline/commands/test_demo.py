"""`make pipeline-demo` from its first line to its last."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PORTS_APART = 100
"""Of one node from the next: `kraftcluster up` gives them so."""


def _room() -> int:
    """The first of six consecutive ports that are free now."""
    for first in range(21000, 30000, 700):
        with socket.socket() as probe:
            try:
                probe.bind(("localhost", first))
            except OSError:
                continue
            return first
    raise AssertionError("no ports are free")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_demo_leaves_files_and_no_process(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    words = ["--out", str(out), "--port", str(_room()), "--records", "20000"]
    done = subprocess.run(
        [sys.executable, "-m", "tools.pipeline_demo", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kraft-pipeline table run" in done.stdout
    assert (out / "report" / "report.html").stat().st_size > 1000
    assert json.loads((out / "scrub.json").read_text())["findings"] == []
    assert not (out / "cluster" / "sample").exists(), "the cluster is gone"
    refused = subprocess.run(
        [sys.executable, "-m", "tools.pipeline_demo", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2, "somebody else's folder is not removed"
