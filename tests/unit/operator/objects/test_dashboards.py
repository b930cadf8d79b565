"""Every metric that a dashboard or an alert names exists, in a simulated cluster after some work or in the operator's
registry. A panel's unit fits its metric.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
import yaml
from prometheus_client import ProcessCollector, generate_latest

from kraft_operator.metrics import Metrics
from kraft_operator.plan.conditions import WAITING, ConditionState
from kraft_operator.plan.model.record import Record
from kraft_operator.plan.model.steps import Blocked, Plan, Remember
from tests.kip.cluster import Cluster
from tools.dashboards import BOARDS, FOLDER, files
from tools.manifests import CHART

RULES = yaml.safe_load((CHART / "rules" / "alerts.yaml").read_text())["groups"]
ALERTS = [rule for group in RULES for rule in group["rules"]]
NAME = re.compile(r"\b(?:kafka|kraft|process)_\w+")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
GIVEN = {"namespace", "cluster", "pool", "node", "pod"}
"""By the monitors of the chart."""


@cache
def known() -> dict[str, set[str]]:
    """The names of all metrics with their labels."""
    cluster = Cluster(3, 3)
    cluster.create("t", [1, 2, 3])
    cluster.produce("b1", "t", b"x")
    cluster.rest(2_000)
    machines = [cluster.node(name) for name in ("c1", "c2", "c3", "b1", "b2", "b3")]
    texts = [node.registry.text() for node in machines]
    operator = Metrics()
    ProcessCollector(registry=operator.registry)  # a node prints the same under the same names
    plan = Plan([Remember(Record(), "")], [], [Blocked("Why", "")])
    operator.passed("n", "c", plan, [ConditionState("Ready", "True", "", "")], took_s=0.1, now_s=1.0)
    operator.writes.labels("patch", "Pod").inc()
    operator.api_errors.labels("409").inc()
    texts.append(generate_latest(operator.registry).decode())
    found: dict[str, set[str]] = {}
    for line in "\n".join(texts).split("\n"):
        if line and not line.startswith("#"):
            name, _, rest = line.partition("{" if "{" in line else " ")
            found.setdefault(name, set()).update(LABEL.findall(rest))
    return found


def queries() -> list[tuple[str, str, str]]:
    """Place, unit and expression of each query."""
    found = [(one["alert"], "", one["expr"]) for one in ALERTS]
    for name in BOARDS:
        for panel in json.loads((FOLDER / f"{name}.json").read_text())["panels"]:
            unit = panel["fieldConfig"]["defaults"]["unit"]
            found += [(f"{name}: {panel['title']}", unit, target["expr"]) for target in panel["targets"]]
    return found


@pytest.mark.parametrize(("where", "unit", "expr"), queries(), ids=lambda value: str(value)[:40])
def test_metrics_and_labels_in_dashboards_exist(where: str, unit: str, expr: str) -> None:
    names = set(NAME.findall(expr))
    assert names
    assert sorted(names - known().keys()) == []
    labels = set().union(*(known()[name] for name in names)) | GIVEN
    assert sorted(set(LABEL.findall(expr)) - labels) == []
    by = [word.strip() for group in re.findall(r"by \(([^)]*)\)", expr) for word in group.split(",") if word.strip()]
    assert sorted(set(by) - labels) == []


@pytest.mark.parametrize(("where", "unit", "expr"), [one for one in queries() if one[1]], ids=lambda v: str(v)[:40])
def test_the_unit_of_a_panel_matches_its_metric(where: str, unit: str, expr: str) -> None:
    names = " ".join(NAME.findall(expr))
    rated = "rate(" in expr
    if "cpu_seconds_total" in names:
        expected = {"percentunit"}
    elif "_seconds" in names:
        expected = {"s"}
    elif re.search(r"(timems|latencyms)\b", names):
        expected = {"ms"}
    elif re.search(r"bytes|log_log_size", names):
        expected = {"Bps"} if rated else {"bytes"}
    else:
        expected = {"cps", "ops", "reqps"} if rated else {"none"}
    assert unit in expected


def test_a_counter_is_shown_by_its_rate_only() -> None:
    for where, _, expr in queries():
        for name in re.findall(r"\b\w+_total\b", expr):
            assert re.search(rf"(rate|increase)\({name}", expr), where


def test_dashboard_files_match_the_tables() -> None:
    assert {one.name: one.read_text() for one in FOLDER.iterdir()} == files(), "run python -m tools.dashboards"


def test_panels_do_not_overlap() -> None:
    for name in BOARDS:
        taken: set[tuple[int, int]] = set()
        for panel in json.loads((FOLDER / f"{name}.json").read_text())["panels"]:
            at: dict[str, Any] = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not cells & taken
            assert at["x"] + at["w"] <= 24
            taken |= cells


def test_alerts_name_the_place_and_the_remedy() -> None:
    assert len({one["alert"] for one in ALERTS}) == len(ALERTS)
    for one in ALERTS:
        assert one["labels"]["severity"] in {"warning", "critical"}
        assert set(one["annotations"]) == {"summary", "description"}
        if "by (" in one["expr"]:
            assert "$labels.cluster" in one["annotations"]["summary"]


def test_gates_that_wait_for_a_person_raise_no_alert() -> None:
    (expr,) = (one["expr"] for one in ALERTS if one["alert"] == "KraftGateHolds")
    (left_out,) = re.findall(r'reason!~"([^"]*)"', expr)
    assert set(left_out.split("|")) == WAITING


def test_metrics_of_a_deleted_cluster_are_removed() -> None:
    metrics = Metrics()
    empty = generate_latest(metrics.registry)
    for reasons in (("One", "Two"), ("Two",)):
        plan = Plan([], [], [Blocked(reason, "") for reason in reasons])
        metrics.passed("n", "c", plan, [], took_s=0.0, now_s=1.0)
        text = generate_latest(metrics.registry).decode()
        assert {one for one in ("One", "Two") if f'reason="{one}"' in text} == set(reasons)
    metrics.forget("n", "c")
    assert b'cluster="c"' not in generate_latest(metrics.registry)
    assert b'cluster="c"' not in empty
