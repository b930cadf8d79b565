"""The lock files of the images: `locks.py PIP-COMPILE` writes deploy/locks anew from pyproject.toml (`make locks`)."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "deploy" / "locks"
FLAGS = (
    "--quiet",
    "--generate-hashes",
    "--no-header",
    "--strip-extras",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-emit-trusted-host",
    "--allow-unsafe",  # setuptools: what it calls unsafe is to be locked as the rest
)

PIPELINE = ("pipeline", "delta", "iceberg", "avro")
"""Extras of its image."""


def wanted() -> dict[str, list[str]]:
    """Requirements of each image. The operator needs nothing of the node but what serves its metrics; the pipeline has
    its codecs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    node = project["project"]["dependencies"]
    extras = project["project"]["optional-dependencies"]
    metrics = [one for one in node if one.startswith("prometheus-client")]
    return {
        "node": node,
        "operator": extras["operator"] + metrics,
        "pipeline": [*node, *(one for name in PIPELINE for one in extras[name])],
        "build": [*project["build-system"]["requires"], "setuptools", "wheel"],  # these two make PySpark's wheel
    }


def main() -> None:
    # Where this machine keeps wheels is nobody else's business.
    environment = {name: value for name, value in os.environ.items() if name != "PIP_FIND_LINKS"}
    for name, requirements in wanted().items():
        target = LOCKS / f"{name}.txt"
        made = subprocess.run(
            [sys.argv[1], *FLAGS, "--output-file", "-", "-"],
            input="\n".join(requirements),
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        ).stdout
        target.write_text(f"# What the {name} image is made of: make locks\n{made}")


if __name__ == "__main__":
    main()
