"""`kraftcluster migrate revert`: gives a cluster back to ZooKeeper's brokers, before the migration is finalised.

The order is: brokers back to ZooKeeper, controllers stopped, `/controller` and `/migration` deleted, brokers without
the keys of the migration. Each call does the one thing that is due, or says what is due.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from kraft_cli.commands import output, show
from kraft_cli.migration.status import FINISHED, read_page
from kraft_cli.migration.survey import of_zookeeper, run_survey
from kraft_cli.target import FAILED, REFUSED, failure

FORMER: Final = (
    "restart the brokers one by one with their former configurations, without zookeeper.metadata.migration.enable, "
    "controller.quorum.voters and controller.listener.names"
)


class Due(NamedTuple):
    """What is due before ZooKeeper can be given back."""

    step: str
    text: str


@click.command()
@click.argument("addresses", nargs=-1, required=True, metavar="HOST:PORT...")
@click.option(
    "--metadata-log",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="__cluster_metadata-0 of the last active controller; refuse if ZooKeeper lacks one of its records",
)
@output
@of_zookeeper
def revert(
    addresses: tuple[str, ...],
    zookeeper: str,
    zk_tls_config_file: Path | None,
    metadata_log: Path | None,
    output: str,
) -> None:
    """Give the cluster back to ZooKeeper's brokers. HOST:PORT is the `http.listener` of a controller: name all.

    Exit code 1 if something must be done first: it is printed. Exit code 3 if it must not be given back.
    """
    pages = {address: read_page(address) for address in addresses}
    due = due_before(pages)
    from rich.text import Text

    if due is not None:
        show({"step": due.step, "done": False, "next": due.text}, Text(f"next         {due.text}"), output)
        raise SystemExit(FAILED)
    found = run_survey("release", zookeeper, zk_tls_config_file=zk_tls_config_file, metadata_log=metadata_log)
    if found["refusal"] is not None:
        raise failure(REFUSED, found["refusal"])
    is_led = found["controller"] is not None
    step = (
        FORMER if is_led else "no broker has become the controller: check the logs of the brokers, and run this again"
    )
    lines = [
        f"ZooKeeper    {'is given back' if found['released'] else 'was not claimed by a KRaft controller'}",
        f"controller   {found['controller'] if is_led else 'none'}",
        f"next         {step}",
    ]
    show({"step": "released", "done": is_led, **found, "next": step}, Text("\n".join(lines)), output)
    if not is_led:
        raise SystemExit(FAILED)


def due_before(pages: dict[str, dict[str, Any]]) -> Due | None:
    """What must be done before ZooKeeper is given back; None: nothing. Raises click.ClickException: too late."""
    answers = [page for page in pages.values() if "problem" not in page]
    if any(page.get("zkMigrationState") == FINISHED for page in answers):
        raise failure(REFUSED, "the migration is finished: ZooKeeper is not up to date, and there is no way back")
    if not answers:
        return None
    names = ", ".join(str(page["nodeId"]) for page in answers)
    active = next((page for page in answers if page.get("migration", {}).get("isActive")), None)
    if active is None:
        return Due("stop", f"stop the controllers {names}, then run this again")
    migration = active["migration"]
    if migration["kraftBrokers"]:
        brokers = ", ".join(map(str, migration["kraftBrokers"]))
        text = (
            f"stop the brokers {brokers} one by one, delete __cluster_metadata-0 in their directories, set "
            "version=0 and broker.id instead of node.id in their meta.properties, and start them as brokers of "
            "Apache Kafka with broker-ID-migrating.properties; then run this again"
        )
        return Due("brokers", text)
    if migration["state"] != "MIGRATION_READY" and (migration["lagRecords"] or migration["driver"] != "DUAL_WRITE"):
        behind = f"the driver is in {migration['driver']}, ZooKeeper is {migration['lagRecords']} records behind"
        return Due("lag", f"wait until ZooKeeper has everything ({behind}), then run this again")
    others = ", ".join(str(page["nodeId"]) for page in answers if page is not active)
    first = f"the controllers {others} first, then {active['nodeId']}" if others else f"controller {active['nodeId']}"
    return Due("stop", f"stop {first}; then run this again")
