"""Runs a command as on a fresh machine: Java, Maven, kcat, helm and Apache Kafka are missing.

    python -m tools.bare COMMAND [ARG ...]

CI installs everything that tests judge by. This program shows the result for a user without these programs. The exit
code is the command's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HIDDEN = frozenset({"java", "javac", "keytool", "mvn", "kcat", "helm", "go", "node", "npm", "sslyze"})
KEPT_OUT = ("CI", "JAVA_HOME")


def path_without(hidden: frozenset[str], folder: Path) -> None:
    """Link every program of the PATH into `folder`, except `hidden`. As in a shell, the first program of a name
    wins."""
    for place in os.environ["PATH"].split(os.pathsep):
        for program in sorted(Path(place).glob("*")):
            link = folder / program.name
            if program.name not in hidden and not link.is_symlink():
                link.symlink_to(program.absolute())


def main() -> int:
    """The command line."""
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as home:
        programs = Path(home) / "bin"
        programs.mkdir()
        path_without(HIDDEN, programs)
        environment = {key: value for key, value in os.environ.items() if key not in KEPT_OUT}
        environment |= {"PATH": str(programs), "KRAFT_PEER_HOME": f"{home}/peers"}
        return subprocess.run(sys.argv[1:], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
