"""`kraftcluster migrate check`: what a running cluster with ZooKeeper has, and what blocks its migration."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from kraft_cli.commands import output, show
from kraft_cli.migration.survey import BLOCKER, PREPARATION, of_brokers, of_kind, of_zookeeper, run_survey
from kraft_cli.target import FAILED

VERSION_KEY: Final = "inter.broker.protocol.version"
MIGRATION_KEY: Final = "zookeeper.metadata.migration.enable"
COLORS: Final = {BLOCKER: "red", PREPARATION: "yellow", "warning": "cyan"}


@click.command()
@output
@of_brokers
@of_zookeeper
def check(zookeeper: str, zk_tls_config_file: Path | None, command_config: Path | None, output: str) -> None:
    """Read a running cluster with ZooKeeper; write nothing. Exit code 1 if something blocks the migration."""
    survey = run_survey("look", zookeeper, zk_tls_config_file=zk_tls_config_file, command_config=command_config)
    survey["next"] = next_step(survey, zookeeper)
    from rich.console import Group

    show(survey, Group(*_tables(survey)), output)
    if of_kind(survey, BLOCKER):
        raise SystemExit(FAILED)


def next_step(survey: dict[str, Any], zookeeper: str) -> str:
    """What to do after the check."""
    if of_kind(survey, BLOCKER):
        return "remove what blocks the migration, then check again"
    controller = survey["controller"]
    if controller is not None and controller["isKRaft"]:
        return "kraftcluster migrate status HOST:PORT... (http.listener of all controllers)"
    if of_kind(survey, PREPARATION):
        ids = "--controller 3001@HOST:9093 --controller 3002@HOST:9093 --controller 3003@HOST:9093"
        return f"kraftcluster migrate start --zookeeper {zookeeper} {ids} --out FOLDER"
    return "start the controllers; then kraftcluster migrate status HOST:PORT... (http.listener of all controllers)"


def _tables(survey: dict[str, Any]) -> list[Any]:
    from rich.table import Table
    from rich.text import Text

    controller = survey["controller"]
    kind = (
        "" if controller is None else f"{'KRaft controller' if controller['isKRaft'] else 'broker'} {controller['id']}"
    )
    counts = ", ".join(f"{count} {_words(name)}" for name, count in survey["counts"].items() if count)
    brokers = Table("broker", "online", "listeners", "version", "migration enabled", "controllers", box=None)
    for one in survey["brokers"]:
        configs = one["configs"]
        brokers.add_row(
            str(one["id"]),
            "yes" if one["isLive"] else "no",
            ", ".join(one["endpoints"]) or "-",
            configs.get(VERSION_KEY, "?"),
            configs.get(MIGRATION_KEY, "?"),
            configs.get("controller.quorum.voters") or "-",
        )
    found: list[Any] = [
        Text(f"cluster      {survey['clusterId']}\ncontroller   {kind or 'none'}\nmetadata     {counts or 'none'}\n"),
        brokers,
    ]
    if survey["findings"]:
        findings = Table("", "who", "what", "do", box=None)
        for one in survey["findings"]:
            findings.add_row(
                Text(one["kind"], COLORS[one["kind"]]), *(Text(one[k]) for k in ("subject", "reason", "fix"))
            )
        found += ["", findings]
    return [*found, Text(f"\nnext         {survey['next']}")]


def _words(name: str) -> str:
    """`scramCredentials` as `scram credentials`."""
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name)
