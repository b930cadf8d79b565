"""Ports for nodes under test: two processes on a machine never get the same ports."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from tests.compat.ports import BLOCK, FIRST, LAST, PortBlock

ROOT = Path(__file__).resolve().parents[3]
TAKE = """
import sys
from pathlib import Path
from tests.compat.ports import PortBlock
block = PortBlock(Path(sys.argv[1]))
print(*block.take(150), flush=True)
sys.stdin.read()
"""


def test_processes_that_run_at_once_are_given_different_ports(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TAKE, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    others = [subprocess.Popen(command, **pipes) for _ in range(3)]  # type: ignore[call-overload]
    try:
        taken = [int(port) for other in others for port in other.stdout.readline().split()]
    finally:
        for other in others:
            other.communicate()
    assert len(taken) == len(set(taken)) == 450
    assert all(FIRST <= port <= LAST for port in taken)


def test_a_port_that_something_listens_on_is_not_given_out(tmp_path: Path) -> None:
    block = PortBlock(tmp_path)
    (first,) = block.take(1)
    with socket.create_server(("127.0.0.1", first)):
        assert first not in block.take(BLOCK - 1)


def test_more_ports_than_a_block_holds_are_given_out(tmp_path: Path) -> None:
    ports = PortBlock(tmp_path).take(BLOCK + 50)
    assert len(set(ports)) == BLOCK + 50
