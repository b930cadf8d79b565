"""What a node loads: no role before it knows its own, and never the other, which is a tenth of its start and memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("asyncio", "importlib.metadata", "kraft_node.migration", "pathlib", "ssl", "subprocess", "tempfile", "urllib")
"""Modules that only some nodes need; pathlib with urllib takes 0.6 MiB."""


@pytest.mark.parametrize(
    ("loaded", "not_loaded"),
    [
        ("kraft_node.server.node", ("kraft_node.broker.broker", "kraft_node.controller.controller")),
        ("kraft_node.broker.broker", ("kraft_node.controller", "kraft_node.base.config.describe")),
        ("kraft_node.broker.authorization", ("kraft_node.controller", "kraft_node.base.config.describe")),
        ("kraft_node.controller.controller", ("kraft_node.broker",)),
        ("kraft_node.cli.server_start, kraft_node.server.node, kraft_node.runtime.env", HEAVY),
        ("kraft_node.broker.broker, kraft_node.controller.controller", HEAVY),
    ],
)
def test_a_node_loads_no_code_that_it_does_not_need(loaded: str, not_loaded: tuple[str, ...]) -> None:
    code = f"import sys, {loaded}; print([name for name in sys.modules if name.startswith({not_loaded!r})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
