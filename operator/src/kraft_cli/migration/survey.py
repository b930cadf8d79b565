"""Runs the program that reads ZooKeeper, and shares the options of its commands."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kraft_cli.target import FAILED, NOT_THERE, failure

PROGRAM: Final = "kraft_node.cli.migration_survey"
BLOCKER: Final = "blocker"
PREPARATION: Final = "preparation"
FILE: Final = click.Path(path_type=Path, exists=True, dir_okay=False)

Command = TypeVar("Command", bound=Callable[..., Any])


def of_zookeeper(command: Command) -> Command:
    """`--zookeeper`, `--zk-tls-config-file`."""
    servers = click.option(
        "--zookeeper", required=True, metavar="HOST:PORT,…", help="zookeeper.connect of the brokers, with its chroot"
    )
    tls = click.option(
        "--zk-tls-config-file",
        type=FILE,
        help="zookeeper.ssl.* and zookeeper.sasl.* keys",
    )
    return servers(tls(command))


def of_brokers(command: Command) -> Command:
    """`--command-config`."""
    text = "client properties, for brokers with TLS and SASL"
    return click.option("--command-config", type=FILE, help=text)(command)


def run_survey(name: str, zookeeper: str, **files: Path | None) -> dict[str, Any]:
    """The JSON object that the program prints. Raises click.ClickException with the program's message."""
    command = [sys.executable, "-m", PROGRAM, name, "--zookeeper", zookeeper]
    for option, path in files.items():
        if path is not None:
            command += [f"--{option.replace('_', '-')}", str(path)]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603  (ours)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().split("\n")
        is_expected = done.returncode == 1 and "Traceback" not in lines[0]
        raise failure(NOT_THERE if is_expected else FAILED, lines[-1] or f"{PROGRAM} ended with {done.returncode}")
    found = json.loads(done.stdout)
    assert isinstance(found, dict), "law: the program prints an object"
    return found


def of_kind(survey: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """The findings of a kind."""
    return [one for one in survey["findings"] if one["kind"] == kind]
