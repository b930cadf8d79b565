"""Tables for a terminal, of a resource with its status. A local cluster's tables also have addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Resource = Mapping[str, Any]

GOOD: Final = "green"
BAD: Final = "red"
UNSURE: Final = "yellow"
DIM: Final = "dim"
STATES: Final = {
    "Ready": GOOD,
    "Failing": BAD,
    "MachineLost": BAD,
    "Unschedulable": BAD,
    "Fenced": UNSURE,
    "Stopped": DIM,
    "": DIM,
}
"""Final states; any other state changes to one of these."""
GOOD_WHEN_FALSE: Final = frozenset({"Degraded", "Paused"})
NOT_TOLD: Final = "no operator has reconciled it yet: does an operator run that watches its namespace?"
NEUTRAL: Final = frozenset({"Progressing"})


def condition(resource: Resource, kind: str) -> Mapping[str, Any]:
    """A condition of the status; empty if it does not exist yet."""
    found = resource.get("status", {}).get("conditions", ())
    return next((one for one in found if one["type"] == kind), {})


def is_ready(resource: Resource) -> bool:
    """Whether the resource has the condition Ready."""
    return condition(resource, "Ready").get("status") == "True"


def summary(resource: Resource) -> Group:
    """All tables of a cluster."""
    parts: list[RenderableType] = [headline(resource), *_conditions(resource), Text()]
    if not resource.get("status"):
        return Group(headline(resource), Text(f"  {NOT_TOLD}", UNSURE))
    parts += [controllers(resource), brokers(resource)]
    parts += _partitions(resource)
    parts += _step(resource)
    return Group(*parts)


def headline(resource: Resource) -> Text:
    """The headline: a line on the whole cluster."""
    status = resource.get("status", {})
    line = Text.assemble((resource["metadata"]["name"], "bold"), "  ")
    ready = condition(resource, "Ready")
    style = GOOD if is_ready(resource) else BAD if ready.get("status") == "False" else UNSURE
    line.append("Ready" if is_ready(resource) else ready.get("reason", "Unknown"), style)
    facts = [
        ("controllers", status.get("controllers")),
        ("brokers", status.get("brokers")),
        ("metadata", status.get("version")),
        ("id", status.get("clusterId")),
        ("bootstrap", resource.get("local", {}).get("bootstrap")),
    ]
    for name, value in facts:
        if value:
            line.append(f"  {name} ", DIM)
            line.append(str(value))
    return line


def _conditions(resource: Resource) -> list[Text]:
    """Conditions with more information than the headline."""
    lines = []
    for one in resource.get("status", {}).get("conditions", ()):
        kind, value = one["type"], one["status"]
        if (kind in GOOD_WHEN_FALSE | NEUTRAL) == (value == "False"):
            continue
        if kind not in GOOD_WHEN_FALSE | NEUTRAL and value == "True":
            continue
        style = UNSURE if kind in NEUTRAL or value == "Unknown" or kind == "Paused" else BAD
        lines.append(Text.assemble(("  " + kind, style), f"  {one['reason']}: {one['message']}"))
    if resource.get("local", {}).get("driver", 0) is None:
        lines.append(Text("  no supervisor runs: start `kraftcluster up`", UNSURE))
    trouble = resource.get("local", {}).get("trouble")
    if trouble:
        lines.append(Text.assemble(("  File", BAD), f"  {trouble}"))
    return lines


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))


def _nodes(resource: Resource, role: str) -> list[Mapping[str, Any]]:
    return [one for one in resource.get("status", {}).get("nodes", ()) if role in one["roles"]]


def _state(node: Mapping[str, Any]) -> Text:
    state = node.get("state", "")
    return Text(state or "Unknown", STATES.get(state, UNSURE))


def controllers(resource: Resource) -> Table:
    """The quorum: leader, voters, observers, and their lag."""
    status = resource.get("status", {})
    nodes = _nodes(resource, "controller")
    epoch = next((one["epoch"] for one in nodes if one.get("epoch") is not None), None)
    table = _table("Quorum" + (f" in epoch {epoch}" if epoch is not None else ""))
    for name in ("id", "role", "state", "lag", "disk", "pool"):
        table.add_column(name, justify="right" if name in {"id", "lag", "disk"} else "left", no_wrap=True)
    _extra_columns(table, resource)
    voters = status.get("voters", ())
    for node in nodes:
        believed = "leader" if node["id"] == status.get("leader") else "voter" if node["id"] in voters else "observer"
        part = node.get("quorum") or believed
        role = Text(part, "bold" if part == "leader" else "")
        lag = node.get("lag")
        row = [str(node["id"]), role, _state(node), "" if lag is None else str(lag), str(node["disk"]), node["pool"]]
        table.add_row(*row, *_extra(resource, node, "controller"))
    return table


def brokers(resource: Resource) -> Table:
    """Brokers."""
    table = _table("Brokers")
    for name in ("id", "state", "disk", "pool"):
        table.add_column(name, justify="right" if name in {"id", "disk"} else "left", no_wrap=True)
    _extra_columns(table, resource)
    for node in _nodes(resource, "broker"):
        row = [str(node["id"]), _state(node), str(node["disk"]), node["pool"]]
        table.add_row(*row, *_extra(resource, node, "broker"))
    return table


def _extra_columns(table: Table, resource: Resource) -> None:
    """Add the columns of `_extra`."""
    if "local" in resource:
        table.add_column("address", no_wrap=True)
        table.add_column("process", justify="right", no_wrap=True)
    else:
        table.add_column("pod", no_wrap=True)
    table.add_column("note", overflow="fold")


def _extra(resource: Resource, node: Mapping[str, Any], role: str) -> list[RenderableType]:
    """The last cells of a node: its address and process (local mode) or its pod, and notes."""
    notes = [name for name in ("leaving", "stopped") if node.get(name)]
    if node.get("needsRestart"):
        notes.append("needs a restart: " + ", ".join(node["needsRestart"]))
    note = Text(", ".join(notes), UNSURE)
    if "local" not in resource:
        return [node.get("pod", ""), note]
    local = resource["local"]
    listener = "controller" if role == "controller" else resource["spec"]["listeners"][0]["name"]
    port = local["ports"].get(f"{node['id']}/{listener}")
    return [f"localhost:{port}" if port else "", str(local["pids"].get(str(node["id"]), "")), note]


def _partitions(resource: Resource) -> list[Text]:
    found = resource.get("status", {}).get("partitions")
    if not found or condition(resource, "Ready").get("reason") == "Hibernated":  # the last view: brokers were stopping
        return []
    line = Text.assemble(("Partitions", "bold"), f"  {found['total']}")
    kinds = (("underReplicated", "under-replicated", UNSURE), ("underMinIsr", "under min ISR", BAD), ("moving",) * 3)
    for key, name, style in kinds:
        if found.get(key):
            line.append(f"  {found[key]} {name}", UNSURE if style == "moving" else style)
    if not found.get("underReplicated"):
        line.append("  all in sync", GOOD)
    return [line, *(Text("  " + text, UNSURE) for text in found.get("named", ()))]


def _step(resource: Resource) -> list[Text]:
    """The current step."""
    step = resource.get("status", {}).get("step")
    if not step:
        return []
    nodes = ", ".join(map(str, step.get("nodes", ())))
    line = Text.assemble(("Step", "bold"), f"  {step['action']}" + (f" {nodes}" if nodes else ""))
    if step.get("why"):
        line.append(f": {step['why']}")
    if step.get("waitsFor"):
        line.append(f"  (waits: {step['waitsFor']})", UNSURE)
    return [line]


def plan_lines(resource: Resource) -> list[Text]:
    """The next steps."""
    if not resource.get("status"):
        return [Text(NOT_TOLD, UNSURE)]
    lines = resource["status"].get("plan", ())
    progressing = condition(resource, "Progressing")
    if not lines and progressing.get("status") == "True":  # a node that only Kubernetes can start
        return [Text(f"waits: {progressing['message']}", UNSURE)]
    return [Text(line) for line in lines] or [Text("nothing to do", GOOD)]


def top(rows: list[tuple[str, str, str, str]]) -> Table:
    """A table of nodes with role, CPU and memory."""
    table = _table("Use")
    for name, justify in (("node", "left"), ("role", "left"), ("cpu", "right"), ("memory", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*row)
    return table
