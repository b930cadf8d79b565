"""What a node loads: no role before it knows its own, and never the other: a tenth of its start and memory."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("loaded", "not_loaded"),
    [
        ("kraft_node.server.node", ("kraft_node.broker.broker", "kraft_node.controller.controller")),
        ("kraft_node.broker.broker", ("kraft_node.controller", "kraft_node.base.config.describe")),
        ("kraft_node.broker.authorization", ("kraft_node.controller", "kraft_node.base.config.describe")),
        ("kraft_node.controller.controller", ("kraft_node.broker",)),
    ],
)
def test_a_node_loads_no_code_of_the_other_role(loaded: str, not_loaded: tuple[str, ...]) -> None:
    code = f"import sys, {loaded}; print([name for name in sys.modules if name.startswith({not_loaded!r})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
