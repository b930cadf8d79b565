"""What a node loads before it knows its roles: neither of them, for the other would be a tenth of its start."""

from __future__ import annotations

import subprocess
import sys

ROLES = ("kraft_node.broker.broker", "kraft_node.controller.controller")


def test_a_node_is_loaded_without_its_roles() -> None:
    code = f"import sys, kraft_node.server.node; print([name for name in {ROLES!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
