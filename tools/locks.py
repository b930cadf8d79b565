"""The lock files of the images: `locks.py PIP-COMPILE` rewrites deploy/locks from pyproject.toml (`make locks`)."""

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
    "--allow-unsafe",  # lock setuptools, which pip calls unsafe, too
)

PIPELINE = ("pipeline", "delta", "iceberg", "avro", "protobuf", "jsonschema")
"""The extras of the pipeline's image."""
TESTED = ("python-dateutil<3",)
"""Limits that give the image the same versions as the tests: botocore, which moto needs, excludes later versions."""


def wanted() -> dict[str, list[str]]:
    """Requirements of each image. Of the node's packages, the operator needs only the metrics; the pipeline also needs
    the codecs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    node = project["project"]["dependencies"]
    extras = project["project"]["optional-dependencies"]
    metrics = [one for one in node if one.startswith("prometheus-client")]
    return {
        "node": [*node, *extras["oauth"], *extras["zookeeper"]],
        "operator": extras["operator"] + metrics,
        "pipeline": [*node, *(one for name in PIPELINE for one in extras[name]), *TESTED],
        "build": [*project["build-system"]["requires"], "setuptools", "wheel"],  # the last two build PySpark's wheel
    }


def main() -> None:
    """Write all lock files, by the `pip-compile` in the first argument."""
    # The lock files must not contain this machine's wheel folder.
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
        target.write_text(f"# The packages of the {name} image: make locks\n{made}")


if __name__ == "__main__":
    main()
