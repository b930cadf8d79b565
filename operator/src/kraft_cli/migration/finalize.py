"""`kraftcluster migrate finalize`: ends a migration once no broker uses ZooKeeper. There is no way back."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from kraft_cli.commands import output, show
from kraft_cli.migration.status import FINISHED, KEY, brokers_left_behind, is_ending, leads_without_key, read_page
from kraft_cli.migration.survey import FILE
from kraft_cli.target import FAILED, NOT_THERE, REFUSED, WRONG, failure, pause
from kraft_protocol.configs.properties import decode_properties, parse_properties

LOOK_S: Final = 0.5
TIMEOUT_S: Final = 600.0

Pages = dict[str, dict[str, Any]]


@click.command()
@click.argument("addresses", nargs=-1, required=True, metavar="HOST:PORT...")
@click.option(
    "--properties",
    "files",
    type=FILE,
    multiple=True,
    help="a controller's configuration file on this machine, to change",
)
@click.option("--restart", metavar="COMMAND", help="command that restarts the controller {id}, for example over ssh")
@click.option("--wait/--no-wait", default=True, show_default=True, help="wait until the migration is finished")
@click.option("--timeout", default=TIMEOUT_S, show_default=True, help="seconds to wait")
@output
def finalize(
    addresses: tuple[str, ...],
    files: tuple[Path, ...],
    restart: str | None,
    wait: bool,
    timeout: float,
    output: str,
) -> None:
    """Check that no broker uses ZooKeeper, set the key to false in the files, restart the controllers one by one.

    HOST:PORT is the `http.listener` of a controller: name all controllers. Refused, with exit code 3, while a broker
    uses ZooKeeper, a broker with replicas is not registered, or ZooKeeper is behind. Without --restart, restart the
    controllers in the order that is printed.
    """
    pages = {address: read_page(address) for address in addresses}
    order = order_of(pages)
    if not is_finished(pages):
        ids = {page["nodeId"]: address for address, page in pages.items()}
        changed = _set_false(files, set(ids))
        is_json = output == "json"  # its readers get one object, at the end
        click.echo(f"{KEY}=false in {', '.join(map(str, changed)) or 'no file'}", err=is_json)
        click.echo(f"controllers restart in this order: {', '.join(map(str, order))}", err=is_json)
        for node_id in order if restart is not None else ():
            assert restart is not None
            _restart(restart, node_id)
            address = ids[node_id]
            _wait_for(timeout, partial(_follows, address, pages[address]), f"controller {node_id} follows")
        if wait or restart is not None:
            _wait_for(timeout, lambda: _unfinished({a: read_page(a) for a in addresses}), "the migration is finished")
    found = {"order": order, "finished": is_finished({address: read_page(address) for address in addresses})}
    from rich.text import Text

    text = "the migration is finished" if found["finished"] else "not finished: restart the controllers"
    show(found, Text(f"state        {text}"), output)


def order_of(pages: Pages) -> list[int]:
    """The ids of the controllers, the active one last. Raises click.ClickException if the migration must not end."""
    silent = {address: page["problem"] for address, page in pages.items() if "problem" in page}
    if silent:
        each = "; ".join(f"{address}: {problem}" for address, problem in silent.items())
        raise failure(NOT_THERE, f"all controllers must answer: {each}")
    ids = {page["nodeId"] for page in pages.values()}
    others = sorted({voter for page in pages.values() for voter in page["voters"]} - ids)
    if others:
        raise failure(WRONG, f"name all controllers: the address of {', '.join(map(str, others))} is missing")
    if is_finished(pages):
        return sorted(ids)
    active = next((page for page in pages.values() if page.get("migration", {}).get("isActive")), None)
    if active is None:
        if all(page.get("zkMigrationState") == FINISHED for page in pages.values()) or is_ending(pages):
            return sorted(ids)
        raise failure(REFUSED, leads_without_key(pages) or _without_active(pages))
    reason = refusal(active["migration"])
    if reason is not None:
        raise failure(REFUSED, reason)
    return [*sorted(ids - {active["nodeId"]}), active["nodeId"]]


def _without_active(pages: Pages) -> str:
    lacking = {page["nodeId"]: address for address, page in pages.items() if "migration" not in page}
    names = ", ".join(f"{node_id} ({address})" for node_id, address in sorted(lacking.items()))
    if not names:
        return "no controller is active: wait until one leads, then run this again"
    return f"no controller that migrates is active: set {KEY}=true on {names}, and restart them"


def refusal(migration: Mapping[str, Any]) -> str | None:
    """Why the migration must not end now; None: it may."""
    if migration["state"] == "KRAFT":
        return None
    if migration["zookeeperBrokers"]:
        names = ", ".join(map(str, migration["zookeeperBrokers"]))
        return f"brokers {names} use ZooKeeper: restart them without it first"
    left_behind = brokers_left_behind(migration)
    if left_behind is not None:
        return left_behind
    if migration["state"] != "MIGRATION_FINISHED" or migration["driver"] != "DUAL_WRITE":
        return (
            f"the state is {migration['state']}, the driver is in {migration['driver']}: follow it with migrate status"
        )
    if migration["blockers"]:
        return f"the migration is blocked: {'; '.join(migration['blockers'])}"
    if migration["lagRecords"]:
        return f"ZooKeeper is {migration['lagRecords']} records behind: wait"
    return None


def is_finished(pages: Pages) -> bool:
    """Whether all controllers run without the key, in a migration that is over."""
    return all(page.get("zkMigrationState") == FINISHED and "migration" not in page for page in pages.values())


def _unfinished(pages: Pages) -> str | None:
    for address, page in pages.items():
        if not is_finished({address: page}):
            return f"{address}: {page.get('problem') or 'it still has the key, or has not finished the migration'}"
    return None


def _follows(address: str, before: Mapping[str, Any]) -> str | None:
    page = read_page(address)
    if "problem" in page:
        return f"{address}: {page['problem']}"
    if "migration" in page:
        return f"{address}: it still runs with {KEY}=true"
    return None if page.get("offset", -1) >= before.get("offset", -1) else f"{address}: it does not follow yet"


def _set_false(files: Iterable[Path], ids: set[int]) -> list[Path]:
    """Change the key in the files of these controllers. Returns the files in which it was true.

    All files are checked first: if one cannot be changed, none is. A later run completes a run that was killed.
    """
    texts = {path: text for path in files if (text := _with_false(path, ids)) is not None}
    for path, text in texts.items():
        new = path.with_name(f"{path.name}.new")
        new.unlink(missing_ok=True)  # of a run that was killed
        new.touch(mode=0o600)  # it may have secrets
        new.write_bytes(text.encode())
        new.chmod(path.stat().st_mode)
        os.replace(new, path)
    return [*texts]


def _with_false(path: Path, ids: set[int]) -> str | None:
    """The text of the file with the key set to false; None if it is false."""
    text = decode_properties(path.read_bytes())
    properties = parse_properties(text)
    if properties.get("node.id") not in set(map(str, ids)):
        raise failure(WRONG, f"{path}: node.id is {properties.get('node.id', 'missing')}, not one of the controllers")
    if properties.get(KEY, "false").strip().lower() == "false":
        return None
    lines = [line for line in text.split("\n") if not line.lstrip().startswith(KEY)]
    changed = "\n".join([*lines, f"{KEY}=false", ""])
    if parse_properties(changed) != {**properties, KEY: "false"}:
        raise failure(WRONG, f"{path}: cannot change {KEY} there; set it to false by hand")
    return changed


def _restart(command: str, node_id: int) -> None:
    words = shlex.split(command.replace("{id}", str(node_id)))
    done = subprocess.run(words, capture_output=True, check=False)  # noqa: S603  (the caller's)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise failure(FAILED, f"{shlex.join(words)}: {reason}")


def _wait_for(timeout_s: float, check: Any, what: str) -> None:
    until = time.monotonic() + timeout_s
    while (waits := check()) is not None:
        if time.monotonic() > until:
            raise failure(FAILED, f"not done in {timeout_s:g} s ({what}): {waits}")
        pause(LOOK_S)
