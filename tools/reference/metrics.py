"""A page of all metrics: names come from the sources, meanings from `metrics.yaml`.

A metric without a meaning, or a meaning without a metric, is an error. The node's names are the strings that its
collectors yield. The operator and the pipeline define name, type and meaning of a metric together.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from kraft_operator.metrics import Metrics
from kraft_pipeline.tables.status_server import LAG, METRICS
from tools.reference.text import cell, code, generated, table

MEANINGS: Final = Path(__file__).parent / "metrics.yaml"
PAGE: Final = "docs/reference/metrics.md"
SOURCES: Final = (
    "node/src/kraft_node/server/monitoring/metrics.py",
    "node/src/kraft_node/server/monitoring/node_metrics.py",
    "node/src/kraft_node/server/monitoring/coordinator_metrics.py",
    "node/src/kraft_node/server/monitoring/security_metrics.py",
    "node/src/kraft_node/server/monitoring/migration_metrics.py",
    "node/src/kraft_node/runtime/process.py",
)
ALERTS: Final = "charts/kraftcluster-operator/rules/alerts.yaml"
_PLACEHOLDER: Final = re.compile(r"\{\{ \$(value|labels\.(?P<label>\w+))[^}]*\}\}")
STARTS: Final = ("kafka_", "kraft_", "process_")
HEAD: Final = """\
Set `http.listener=HOST:PORT` in a node's configuration, then read `http://HOST:PORT/metrics` in Prometheus' text
format. On Kubernetes the operator sets it: `spec.metrics` of a [KRaftCluster](resources/kraftcluster.md). Metrics that
Apache Kafka has keep the names and labels that jmx_exporter gives them with the rules of Strimzi. `*` stands for the
words that the meaning lists. A node prints a metric only once it has a value for it.

"""


def pages(root: Path) -> dict[str, str]:
    """Path -> text. Raises ValueError for a metric without a meaning, or a meaning without a metric."""
    groups: dict[str, dict[str, str]] = yaml.safe_load(MEANINGS.read_text())
    found = {name: kind for source in SOURCES for name, kind in node_metrics((root / source).read_text())}
    named = {name for rows in groups.values() for name in rows}
    if found.keys() != named:
        raise ValueError(
            f"tools/reference/metrics.yaml: no meaning for {sorted(found.keys() - named)}, "
            f"no metric for {sorted(named - found.keys())}"
        )
    text = generated("Metrics and alerts", "the sources of the metrics and the chart's alerts") + HEAD
    for title, rows in groups.items():
        text += f"## {title}\n\n"
        text += table(
            ("metric", "type", "meaning"),
            ((code(name), found[name], cell(meaning)) for name, meaning in sorted(rows.items())),
        )
        text += "\n"
    text += "## The operator\n\nOn port 8080 of the operator's pods.\n\n"
    text += table(("metric", "type", "labels", "meaning"), _operator())
    text += "\n## A KafkaTable\n\nServed by `kraft-pipeline table run --http PORT`.\n\n"
    of_tables = [*(row[1:] for row in METRICS), (LAG[0], "gauge", f"{LAG[1]}; labels `topic` and `partition`")]
    text += table(
        ("metric", "type", "meaning"), ((code(name), kind, cell(meaning)) for name, kind, meaning in of_tables)
    )
    text += "\n## Alerts\n\nThe operator's chart installs these rules with `metrics.rules.enabled=true`.\n\n"
    text += table(("alert", "severity", "after", "meaning"), _alerts(root / ALERTS))
    return {PAGE: text}


def _operator() -> Iterator[tuple[str, str, str, str]]:
    for family in sorted(Metrics().registry.collect(), key=lambda one: one.name):
        name = family.name + ("_total" if family.type == "counter" else "")
        yield code(name), family.type, ", ".join(map(code, _labels(name))), cell(family.documentation)


def _labels(name: str) -> tuple[str, ...]:
    for metric in vars(Metrics()).values():
        if getattr(metric, "_name", None) in {name, name.removesuffix("_total")}:
            return tuple(metric._labelnames)
    return ()


def _alerts(path: Path) -> Iterator[tuple[str, str, str, str]]:
    for group in yaml.safe_load(path.read_text())["groups"]:
        for rule in group["rules"]:
            words = f"{rule['annotations']['summary']}. {rule['annotations']['description']}"
            yield (
                code(rule["alert"]),
                rule.get("labels", {}).get("severity", ""),
                str(rule.get("for", "")),
                cell(_PLACEHOLDER.sub(lambda found: found["label"] or "N", words)),
            )


def node_metrics(source: str) -> Iterator[tuple[str, str]]:
    """Name and type of each metric family that a module's collectors yield; names built in a loop contain `*`."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _families(function)


def _families(function: ast.AST) -> Iterator[tuple[str, str]]:
    known: dict[str, str] = {}
    for node in _in_order(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = _text(node.value, known)
            if text is not None:
                known[node.targets[0].id] = text
        elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 3:
            yield from _family(node.value.elts[0], node.value.elts[1], known)
        elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Call):
            name, *rest = node.value.args
            yield from _family(name, rest[1] if len(rest) > 1 else ast.Constant("gauge"), known)


def _family(name: ast.expr, kind: ast.expr, known: dict[str, str]) -> Iterator[tuple[str, str]]:
    text = _text(name, known)
    if text is not None and text.startswith(STARTS) and isinstance(kind, ast.Constant):
        yield text, str(kind.value)


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below `node`, in source order."""
    for child in ast.iter_child_nodes(node):
        yield child
        yield from _in_order(child)


def _text(node: Any, known: dict[str, str]) -> str | None:
    """The text of an expression, with `*` for parts known only at run time; None if it is not text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left, known), _text(node.right, known)
        return None if left is None else left + ("*" if right is None else right)
    if isinstance(node, ast.JoinedStr):
        return "".join(_parts(node.values, known))
    return None


def _parts(values: Iterable[ast.expr], known: dict[str, str]) -> Iterator[str]:
    for value in values:
        text = _text(value.value if isinstance(value, ast.FormattedValue) else value, known)
        yield "*" if text is None else text
