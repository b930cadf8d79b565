"""The guide Migrate from ZooKeeper on Kubernetes: its blocks, and its commands as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path

from e2e.kube import NODE_IMAGE, ROOT

PAGE = ROOT / "docs/how-to/migrate-from-zookeeper-on-kubernetes.md"
IMAGE = "localhost/kraftcluster:dev"
"""The image of nodes in the guide."""
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
COMMANDS_S = 660
"""Longer than each `--timeout` of a command that is followed here, but for that of step 3."""


class Guide:
    """The guide, followed in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        text = PAGE.read_text().replace(IMAGE, NODE_IMAGE)
        sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
        self._blocks = {
            one.partition("\n")[0]: [(kind, textwrap.dedent(block)) for _, kind, block in BLOCK.findall(one)]
            for one in sections
        }

    def kinds(self) -> dict[str, list[str]]:
        """The languages of the blocks of each section with blocks; empty: commands."""
        return {title: [kind for kind, _ in blocks] for title, blocks in self._blocks.items() if blocks}

    def text(self, title: str, number: int = 0) -> str:
        """A block of a section."""
        return self._blocks[title][number][1]

    def run(self, title: str, number: int = 0, values: Mapping[str, str] | None = None) -> str:
        """Run a block of commands. Returns its output. `values` replace values of the guide's example."""
        script = self.text(title, number)
        for old, new in (values or {}).items():
            script = script.replace(old, new)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=os.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMANDS_S,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout
