"""The commands of both programs. `shared` builds them for a program, which passes a function that finds a target."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, TypeVar

import click

from kraft_cli.target import FAILED, REFUSED, WRONG, Target, failure, wait_for
from kraft_operator.specs.planner_input import APPROVE, REBALANCE, ROLL, SKIP, rolls_of

TIMEOUT_S: Final = 600.0
"""Time to wait for a request. A roll of many brokers takes minutes, and continues after this time."""
REFUSED_S: Final = 15.0
"""Time after which a refusal is final. Views are renewed every second or two."""

FILE_COLUMNS: Final = 200
"""Width of a table in a file or a pipe, in characters."""

Command = TypeVar("Command", bound=Callable[..., Any])
Selects = Callable[[Command], Command]
Find = Callable[..., Target]


def output(command: Command) -> Command:
    """`-o json`."""
    option = click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        help="format of the output: a table, or JSON for programs",
    )
    short = click.option("--json", "output", flag_value="json", help="the same as -o json")
    return short(option(command))


def waiting(command: Command) -> Command:
    """`--no-wait`, `--timeout`."""
    wait = click.option("--wait/--no-wait", default=True, show_default=True, help="wait until it is done")
    timeout = click.option("--timeout", default=TIMEOUT_S, show_default=True, help="seconds to wait")
    return wait(timeout(command))


def named(command: Command) -> Command:
    """Accept the cluster's name as an argument, in commands without other arguments."""
    return click.argument("named", metavar="[CLUSTER]", required=False)(command)


def show(resource: Mapping[str, Any], renderable: Any, output: str, part: Any = None) -> None:
    """Print as tables or as JSON."""
    if output == "json":
        click.echo(json.dumps(resource if part is None else part, indent=2))
        return
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = FILE_COLUMNS
    console.print(renderable)


def shared(group: click.Group, selects: Selects[Any], find: Find) -> None:
    """Add the commands to `group`.

    `selects` decorates a command with options that name a target; `find` takes these options.
    """
    for make in (_status, _plan, _top, _logs, _approve, _roll, _replace, _rebalance, _skip, _flags):
        make(group, selects, find)


def _status(group: click.Group, selects: Selects[Any], find: Find) -> None:
    @group.command()
    @click.option("-w", "--watch", is_flag=True, help="repeat until Ctrl-C")
    @output
    @named
    @selects
    def status(watch: bool, output: str, **selected: Any) -> None:
        """Show quorum, brokers, partitions, and the current step. Exit code 0 if the cluster is ready, else 1."""
        from kraft_operator.report import tables

        target = find(**selected)
        if watch and (output == "json" or not sys.stdout.isatty()):
            _print_changes(target, output)
        if watch:
            from rich.live import Live

            with Live(tables.summary(target.resource()), auto_refresh=False, screen=True) as live:
                while True:
                    time.sleep(1.0)
                    live.update(tables.summary(target.resource()), refresh=True)
        resource = target.resource()
        show(resource, tables.summary(resource), output)
        if not tables.is_ready(resource):
            raise SystemExit(FAILED)


def _print_changes(target: Target, output: str) -> NoReturn:
    """Print the status whenever it changes, for a file or a pipe."""
    from kraft_operator.report import tables

    last: Any = None
    while True:
        resource = target.resource()
        if resource.get("status") != last:
            last = resource.get("status")
            show(resource, tables.summary(resource), output)
            sys.stdout.flush()
        time.sleep(1.0)


def _plan(group: click.Group, selects: Selects[Any], find: Find) -> None:
    @group.command()
    @output
    @named
    @selects
    def plan(output: str, **selected: Any) -> None:
        """Show the next steps, what they wait for, and which nodes need a restart."""
        from rich.console import Group

        from kraft_operator.report import tables

        resource = find(**selected).resource()
        show(resource, Group(*tables.plan_lines(resource)), output, resource.get("status", {}).get("plan", []))


def _top(group: click.Group, selects: Selects[Any], find: Find) -> None:
    @group.command()
    @output
    @named
    @selects
    def top(output: str, **selected: Any) -> None:
        """Show processor time and memory of every node."""
        from kraft_operator.report import tables

        target = find(**selected)
        resource = target.resource()
        rows = target.use(resource.get("status", {}).get("nodes", []))
        names = ("node", "role", "cpu", "memory")
        show(resource, tables.top(rows), output, [dict(zip(names, row, strict=True)) for row in rows])


def _logs(group: click.Group, selects: Selects[Any], find: Find) -> None:
    @group.command()
    @click.argument("node", type=int)
    @click.option("-f", "--follow", is_flag=True, help="follow the log until Ctrl-C")
    @click.option("--tail", "lines", default=100, show_default=True, help="number of lines, the latest ones")
    @selects
    def logs(node: int, follow: bool, lines: int, **selected: Any) -> None:
        """Print the log of a node."""
        target = find(**selected)
        for line in target.log(_node(target.resource(), node), lines, follow):
            click.echo(line, nl=False)


def _node(resource: Mapping[str, Any], node_id: int) -> Mapping[str, Any]:
    nodes = resource.get("status", {}).get("nodes", ())
    found = next((one for one in nodes if one["id"] == node_id), None)
    if found is None:
        ids = ", ".join(str(one["id"]) for one in nodes) or "none yet"
        raise failure(WRONG, f"node {node_id} does not exist in {resource['metadata']['name']}; its nodes: {ids}")
    return found  # type: ignore[no-any-return]


def _approve(group: click.Group, selects: Selects[Any], find: Find) -> None:
    @group.command()
    @named
    @selects
    def approve(**selected: Any) -> None:
        """Approve the restarts that the plan shows (updateStrategy.supervised)."""
        target = find(**selected)
        target.driven()
        revision = target.resource().get("status", {}).get("revision", "")
        if not revision:
            raise failure(FAILED, f"{target.name} has no revision to approve yet")
        target.annotate({APPROVE: revision})
        click.echo(f"{target.name}: revision {revision} is approved")


def _roll(group: click.Group, selects: Selects[Any], find: Find) -> None:
    @group.command()
    @click.argument("nodes", type=int, nargs=-1)
    @waiting
    @selects
    def roll(nodes: tuple[int, ...], wait: bool, timeout: float, **selected: Any) -> None:
        """Restart NODES, or all nodes, one after the other. Partitions and the quorum stay available."""
        target = find(**selected)
        target.driven()
        resource = target.resource()
        chosen = nodes or tuple(one["id"] for one in resource.get("status", {}).get("nodes", ()))
        if not chosen:
            raise failure(FAILED, f"{target.name} has no nodes yet")
        for node_id in chosen:
            _node(resource, node_id)
        token = _token()
        there = rolls_of(resource["metadata"].get("annotations", {}).get(ROLL, ""))
        asked = {**there, **dict.fromkeys(chosen, token)}
        target.annotate({ROLL: ",".join(f"{node_id}={word}" for node_id, word in sorted(asked.items()))})
        names = ", ".join(map(str, chosen))
        click.echo(f"{target.name}: {names} restart one after the other")
        if wait:
            before = resource.get("status", {}).get("revision", "")
            wait_for(target, timeout, lambda now: _not_rolled(now, before, chosen))
            click.echo(f"{target.name}: done")


def _not_rolled(resource: Mapping[str, Any], before: str, chosen: Collection[int]) -> str | None:
    """Describe what a roll of nodes that was requested after revision `before` waits for.

    Other nodes may wait for something else, such as a maintenance window.
    """
    status = resource.get("status", {})
    if status.get("revision", "") == before:
        return "the request was not read yet"
    nodes = [one for one in status.get("nodes", ()) if one["id"] in chosen]
    late = next((one["id"] for one in nodes if one["state"] != "Ready"), None)
    return _restarts(resource, nodes) or (None if late is None else _node_not_ready(status, late))


def _restarts(resource: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]]) -> str | None:
    """Describe how many of these nodes have to restart, and the reason against it."""
    late = [one for one in nodes if one.get("needsRestart")]
    if late:
        blocked = _condition_message(resource, "Degraded") or _condition_message(resource, "Paused")
        return f"{len(late)} nodes have to restart" + (f": {blocked}" if blocked else "")
    return None


def _condition_message(resource: Mapping[str, Any], kind: str) -> str:
    found = resource.get("status", {}).get("conditions", ())
    return next((str(one["message"]) for one in found if one["type"] == kind and one["status"] == "True"), "")


def _replace(group: click.Group, selects: Selects[Any], find: Find) -> None:
    @group.command()
    @click.argument("node", type=int)
    @click.option(
        "--new-id",
        is_flag=True,
        help="replace the node by a node with a new id, and retire this id; otherwise the node gets a new disk",
    )
    @click.option(
        "--accept",
        type=click.Choice(["MetadataPause", "DataLoss"]),
        multiple=True,
        help="accept a risk: a pause of metadata changes, or the loss of the last copies of data",
    )
    @waiting
    @selects
    def replace(node: int, new_id: bool, accept: tuple[str, ...], wait: bool, timeout: float, **selected: Any) -> None:
        """Give NODE an empty disk, or replace it by a node with another id. Refused while this is not safe."""
        target = find(**selected)
        target.driven()
        resource = target.resource()
        _node(resource, node)
        item = {"name": _free_name(resource, node), "node": node, "by": "NewId" if new_id else "EmptyDisk"}
        target.request_replacement({**item, "accept": sorted(set(accept))})
        click.echo(f"{target.name}: replacement {item['name']} is requested")
        if wait:
            _until_replaced(target, str(item["name"]), node, timeout)


def _free_name(resource: Mapping[str, Any], node: int) -> str:
    """A new name. A replacement runs only once under its name, even if it was forgotten since."""
    asked = resource.get("spec", {}).get("replacements", ())
    taken = {one["name"] for one in (*asked, *resource.get("status", {}).get("replacements", ()))}
    name = first = f"node-{node}-{datetime.now(UTC).strftime('%y%m%d%H%M%S')}"
    number = 0
    while name in taken:
        number += 1
        name = f"{first}-{number}"
    return name


def _node_not_ready(status: Mapping[str, Any], node: int) -> str | None:
    """Describe what a replaced node waits for. Other nodes that are down may need a replacement, too."""
    found = next((one for one in status.get("nodes", ()) if one["id"] == node), {"state": "unknown"})
    return None if found["state"] == "Ready" else f"node {node} has the state {found['state']}"


def _until_replaced(target: Target, name: str, node: int, timeout: float) -> None:
    refused_since: float | None = None

    def waits(resource: dict[str, Any]) -> str | None:
        nonlocal refused_since
        status = resource.get("status", {})
        begun = next((one for one in status.get("replacements", ()) if one["name"] == name), None)
        if begun is not None:
            refused_since = None
            if not begun.get("done"):
                return (
                    _condition_message(resource, "Degraded")
                    or _condition_message(resource, "Progressing")
                    or "it has begun"
                )
            # Voters restart after a new id. Restarts for changes may wait for a window: they do not belong to this.
            others = [] if _condition_message(resource, "Paused") else status.get("nodes", ())
            return _restarts(resource, others) or _node_not_ready(status, begun.get("newId") or node)
        message = _condition_message(resource, "Degraded")
        if f"replacement {name} " not in message:
            refused_since = None
            return _condition_message(resource, "Paused") or "the request was not read yet"
        refused_since = refused_since or time.monotonic()
        if time.monotonic() - refused_since > REFUSED_S:
            target.withdraw_replacement(name)
            raise failure(REFUSED, f"refused, and withdrawn: {message}")
        return message

    wait_for(target, timeout, waits)
    click.echo(f"{target.name}: replacement {name} is done")


def _rebalance(group: click.Group, selects: Selects[Any], find: Find) -> None:
    @group.command()
    @named
    @waiting
    @selects
    def rebalance(wait: bool, timeout: float, **selected: Any) -> None:
        """Move replicas until every broker has its share, by count and rack, with as few moves as possible."""
        target = find(**selected)
        target.driven()
        token = _token()
        target.annotate({REBALANCE: token})
        click.echo(f"{target.name}: replicas are balanced")

        def waits(resource: dict[str, Any]) -> str | None:
            if resource.get("status", {}).get("balancedFor") == token:
                return None
            message = (_condition_message(resource, kind) for kind in ("Degraded", "Paused", "Progressing"))
            return next(filter(None, message), "the request was not read yet")

        if wait:
            wait_for(target, timeout, waits)
            click.echo(f"{target.name}: done")


def _token() -> str:
    """A word that was not used before."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def _skip(group: click.Group, selects: Selects[Any], find: Find) -> None:
    @group.command()
    @click.argument("nodes", type=int, nargs=-1)
    @selects
    def skip(nodes: tuple[int, ...], **selected: Any) -> None:
        """Do not change NODES until the next `skip`; without NODES, end this for all nodes."""
        target = find(**selected)
        resource = target.resource()
        for node_id in nodes:
            _node(resource, node_id)
        target.annotate({SKIP: ",".join(map(str, nodes))})
        left = ", ".join(map(str, nodes))
        click.echo(f"{target.name}: {left or 'no node'} is left alone")


FLAGS: Final = {
    "pause": ("paused", True, "Only watch the cluster: start, stop and change nothing."),
    "resume": ("paused", False, "Continue after `pause`."),
    "hibernate": ("hibernated", True, "Stop all nodes, brokers first; their volumes stay."),
    "wake": ("hibernated", False, "Start the nodes again after `hibernate`."),
}


def _flags(group: click.Group, selects: Selects[Any], find: Find) -> None:
    for name, (field, value, text) in FLAGS.items():
        group.add_command(_flag(name, field, value, text, selects, find))


def _flag(name: str, field: str, value: bool, text: str, selects: Selects[Any], find: Find) -> click.Command:
    @click.command(name, help=text)
    @named
    @selects
    def command(**selected: Any) -> None:
        target = find(**selected)
        target.flag(field, value)
        click.echo(f"{target.name}: {field} is {str(value).lower()}")

    return command
