"""`kraftcluster migrate status`: how far a cluster has come on its way from ZooKeeper, and what to do next (KIP-866).

The controllers know the state: `/status` at their `http.listener` describes the migration.
"""

from __future__ import annotations

import http.client
import json
import sys
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

import click

from kraft_cli.commands import output, show
from kraft_cli.target import NOT_THERE, failure, pause

ANSWER_S: Final = 5.0
BYTES_MAX: Final = 1 << 20
LOOK_S: Final = 1.0
MIGRATED: Final = 1
"""MIGRATION in the metadata log."""
FINISHED: Final = 3
"""POST_MIGRATION in the metadata log."""
KEY: Final = "zookeeper.metadata.migration.enable"
WORDS: Final = {
    "MIGRATION_READY": "the metadata is still in ZooKeeper",
    "MIGRATION_ACTIVE": "changes go to both worlds; some brokers use ZooKeeper",
    "MIGRATION_FINISHED": "changes go to both worlds; no broker uses ZooKeeper",
    "KRAFT": "the migration is finished",
}


@click.command()
@click.argument("addresses", nargs=-1, required=True, metavar="HOST:PORT...")
@click.option("-w", "--watch", is_flag=True, help="follow the migration until it is finished, or Ctrl-C")
@output
def status(addresses: tuple[str, ...], watch: bool, output: str) -> None:
    """Show the state of the migration. HOST:PORT is the `http.listener` of a controller: name all controllers."""
    pages = {address: read_page(address) for address in addresses}
    found = summary(pages)
    if found["active"] is None and not any("problem" not in page for page in pages.values()):
        problems = "; ".join(f"{address}: {page['problem']}" for address, page in pages.items())
        raise failure(NOT_THERE, f"no controller answers: {problems}")
    if watch:
        _follow(addresses, found, output)
    else:
        _show(found, output)


def _show(found: dict[str, Any], output: str) -> None:
    from rich.text import Text

    show(found, Text("\n".join(lines(found))), output)


def _follow(addresses: tuple[str, ...], found: dict[str, Any], output: str) -> None:
    """Show each change: on a terminal in place, else one after the other; as JSON one object a line."""
    if output == "json" or not sys.stdout.isatty():
        shown = None
        while True:
            if found != shown:
                if output == "json":
                    click.echo(json.dumps(found))
                else:
                    click.echo("\n".join([*lines(found), ""]))
                shown = found
            if found["isFinished"]:
                return
            pause(LOOK_S)
            found = summary({address: read_page(address) for address in addresses})
    from rich.live import Live
    from rich.text import Text

    with Live(Text(""), auto_refresh=False) as live:
        while True:
            live.update(Text("\n".join(lines(found))), refresh=True)
            if found["isFinished"]:
                return
            pause(LOOK_S)
            found = summary({address: read_page(address) for address in addresses})


def read_page(address: str) -> dict[str, Any]:
    """Get `/status` of one node. Returns `{"problem": reason}` if the node does not send its status."""
    try:
        with urllib.request.urlopen(f"http://{address}/status", timeout=ANSWER_S) as answer:
            page = json.loads(answer.read(BYTES_MAX))
    except (OSError, ValueError, http.client.HTTPException) as error:
        return {"problem": str(getattr(error, "reason", error))}
    return page if isinstance(page, dict) else {"problem": "it is not a node of kraftcluster"}


def summary(pages: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The state of the migration. `active` is from the page of the active controller; None if no page is of it."""
    active: dict[str, Any] | None = None
    nodes = []
    for address, page in pages.items():
        migration = page.get("migration")
        problem = page.get("problem")
        if problem is None:
            problem = _of_key(page)
        nodes.append({"address": address, "node": page.get("nodeId"), "problem": problem})
        if migration and migration["isActive"]:
            active = {"node": page["nodeId"], **migration}
    is_finished = all("migration" not in page and page.get("zkMigrationState") == FINISHED for page in pages.values())
    found: dict[str, Any] = {"active": active, "controllers": nodes, "isFinished": is_finished}
    if is_finished:
        return {**found, "next": "nothing: the migration is finished"}
    if is_ending(pages):
        return {**found, "next": "wait: the migration is finished once one of the controllers leads"}
    lacking = leads_without_key(pages)
    if lacking is not None:
        return {**found, "next": lacking}
    return {**found, "next": advice(active, nodes, any("problem" in page for page in pages.values()))}


def _of_key(page: dict[str, Any]) -> str | None:
    """What is wrong with the key of the migration on this controller."""
    if "migration" in page or page.get("zkMigrationState") == FINISHED:
        return None
    reason = page.get("migrationNeedsKey")
    return f"it does not migrate: {KEY} is not true there" + (f", but it is active: {reason}" if reason else "")


def leads_without_key(pages: Mapping[str, Mapping[str, Any]]) -> str | None:
    """What to do about an active controller without the key of the migration; None if it has the key."""
    for address, page in pages.items():
        if page.get("migrationNeedsKey"):
            return f"set {KEY}=true on controller {page['nodeId']} ({address}), which is active, and restart it"
    return None


def is_ending(pages: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether all controllers have restarted without the key: one of them records the end once it leads."""
    if any("problem" in page or "migration" in page for page in pages.values()):
        return False
    migrated = any(page.get("zkMigrationState") in (MIGRATED, FINISHED) for page in pages.values())
    return migrated and leads_without_key(pages) is None


def brokers_left_behind(migration: Mapping[str, Any]) -> str | None:
    """Advice about brokers that could not continue if the migration ended now; None if there is no such broker.

    They have replicas, but are not registered, or they run with ZooKeeper, but take no part. Older controllers do not
    report them.
    """
    missing, ignored = migration.get("missingBrokers"), migration.get("incompatibleBrokers")
    if missing:
        names = ", ".join(map(str, missing))
        return (
            f"brokers {names} have replicas, but are not registered: start them without ZooKeeper "
            "(broker-ID-kraft.properties), or move their replicas away first"
        )
    if ignored:
        return f"brokers run with ZooKeeper, but take no part in the migration: stop them ({'; '.join(ignored)})"
    return None


def advice(active: dict[str, Any] | None, nodes: list[dict[str, Any]], some_are_silent: bool) -> str:
    """What to do next. `some_are_silent`: some nodes did not send their status, so they may migrate."""
    if active is None:
        if some_are_silent:
            return "ask again once all controllers answer: one that does not may be the active one"
        if all(one["problem"] for one in nodes):
            return f"set {KEY}=true on the controllers, or nothing if the migration was finished before"
        return (
            "name the addresses of all controllers: the active one is not among these, or no controller is active yet"
        )
    if active["blockers"]:
        return "remove what blocks the migration"
    if active["state"] == "MIGRATION_READY":
        return "wait: the metadata is being migrated"
    if active["state"] == "MIGRATION_ACTIVE":
        if active["driver"] != "DUAL_WRITE" or active["waitingBrokers"]:
            return "wait until all brokers have received the metadata"
        brokers = ", ".join(map(str, active["zookeeperBrokers"]))
        return f"restart the brokers {brokers} without ZooKeeper (broker-ID-kraft.properties), one by one"
    if active["state"] == "MIGRATION_FINISHED":
        left_behind = brokers_left_behind(active)
        if left_behind is not None:
            return left_behind
        return f"kraftcluster migrate finalize: it sets {KEY}=false on the controllers; there is no way back"
    return f"nothing: remove {KEY} and the keys of ZooKeeper"


def lines(found: dict[str, Any]) -> list[str]:
    """The summary for people."""
    shown = []
    active = found["active"]
    if active is not None:
        shown += [
            f"state        {active['state']}: {WORDS.get(active['state'], '')}",
            f"driver       {active['driver']} on controller {active['node']}",
            f"records      {active['readRecords']} read, ZooKeeper is {active['lagRecords']} behind",
            f"brokers      with ZooKeeper: {_ids(active['zookeeperBrokers'])}; without: {_ids(active['kraftBrokers'])}",
        ]
        shown += [f"blocked by   {blocker}" for blocker in active["blockers"]]
        shown += [f"ignored      {broker}" for broker in active.get("incompatibleBrokers", ())]
    for node in found["controllers"]:
        if node["problem"]:
            shown.append(f"controller   {node['address']}: {node['problem']}")
    return [*shown, f"next         {found['next']}"]


def _ids(ids: list[int]) -> str:
    return ", ".join(map(str, ids)) or "none"
