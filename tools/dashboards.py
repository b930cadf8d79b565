"""Grafana's dashboards of the operator's chart: `python -m tools.dashboards` writes charts/…/dashboards.

A panel is one line: title, unit, and expressions with their legends. This module adds the rest of Grafana's format, so
that panels look alike and no unit is forgotten.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

FOLDER: Final = Path(__file__).parents[1] / "charts" / "kraftcluster-operator" / "dashboards"
WIDTH: Final = 24
HEIGHT: Final = 8
STAT_HEIGHT: Final = 4
CONTROLLER: Final = "kafka_controller_kafkacontroller_"
RAFT: Final = "kafka_server_raftmetrics_"
REPLICAS: Final = "kafka_server_replicamanager_"
TOPICS: Final = "kafka_server_brokertopicmetrics_"
REQUESTS: Final = "kafka_network_requestmetrics_"
OPERATOR: Final = "kraft_operator_"
EACH: Final = 'topic!=""'
"""Selects series per topic; the series without a topic is their sum."""
FAILED: Final = 'error!="NONE"'
"""Excludes successes, which are counted under the error NONE."""
OF: Final = 'namespace="$namespace",cluster="$cluster"'


class Panel(NamedTuple):
    """One panel; `kind` is stat, timeseries or table. `bad`: a stat is red from that value on, or below 1."""

    title: str
    unit: str
    queries: dict[str, str]
    """Legend -> expression."""
    kind: str = "timeseries"
    bad: float | None = None
    description: str = ""


def of(metric: str, more: str = "") -> str:
    """A metric of the chosen cluster."""
    return f"{metric}{{{OF}{',' + more if more else ''}}}"


def rate(metric: str, more: str = "") -> str:
    """The increase of a counter of the chosen cluster, per second."""
    return f"rate({of(metric, more)}[$__rate_interval])"


QUORUM: Final = (
    Panel("Leader", "none", {"": f"max({of(RAFT + 'current_leader')})"}, "stat"),
    Panel("Epoch", "none", {"": f"max({of(RAFT + 'current_epoch')})"}, "stat"),
    Panel(
        "Active controllers",
        "none",
        {"": f"sum({of(CONTROLLER + 'activecontrollercount')})"},
        "stat",
        description="one, a moment of none at a change of leader aside",
    ),
    Panel("Voters", "none", {"": f"max({of(RAFT + 'number_of_voters')})"}, "stat"),
    Panel("Fenced brokers", "none", {"": f"max({of(CONTROLLER + 'fencedbrokercount')})"}, "stat", bad=1),
    Panel("Offline partitions", "none", {"": f"max({of(CONTROLLER + 'offlinepartitionscount')})"}, "stat", bad=1),
    Panel("Changes of leader", "none", {"epochs": f"changes({of(RAFT + 'current_epoch')}[$__rate_interval])"}),
    Panel(
        "Metadata log behind its leader",
        "none",
        {"{{node}}": f"max by () ({of(RAFT + 'log_end_offset')}) - on () group_right {of(RAFT + 'log_end_offset')}"},
        description="records that a node has not fetched yet, by the latest scrapes",
    ),
    Panel("Committed and not yet applied", "none", {"{{node}}": of(CONTROLLER + "metadatalag")}),
    Panel(
        "Commit latency",
        "ms",
        {"p{{quantile}}": f"max by (quantile) ({of(CONTROLLER + 'metadatacommitlatencyms')})"},
    ),
    Panel("Records committed", "cps", {"records": f"max({rate(CONTROLLER + 'metadatacommitrate_total')})"}),
    Panel("Records since the last snapshot", "none", {"{{node}}": of(CONTROLLER + "metadatasnapshotoffsetlag")}),
    Panel("Resident memory", "bytes", {"{{node}}": of("process_resident_memory_bytes")}),
    Panel("CPU", "percentunit", {"{{node}}": rate("process_cpu_seconds_total")}),
)

BROKERS: Final = (
    Panel("Unfenced brokers", "none", {"": f"max({of(CONTROLLER + 'activebrokercount')})"}, "stat"),
    Panel("Fenced brokers", "none", {"": f"max({of(CONTROLLER + 'fencedbrokercount')})"}, "stat", bad=1),
    Panel("Brokers that fenced themselves", "none", {"": f"sum({of('kraft_broker_self_fenced')})"}, "stat", bad=1),
    Panel(
        "Log directories offline",
        "none",
        {"": f"sum({of('kafka_log_logmanager_offlinelogdirectorycount')})"},
        "stat",
        bad=1,
    ),
    Panel("Bytes in", "Bps", {"{{node}}": f"sum by (node) ({rate(TOPICS + 'bytesin_total', EACH)})"}),
    Panel("Bytes out", "Bps", {"{{node}}": f"sum by (node) ({rate(TOPICS + 'bytesout_total', EACH)})"}),
    Panel("Records in", "cps", {"{{node}}": f"sum by (node) ({rate(TOPICS + 'messagesin_total', EACH)})"}),
    Panel("Requests", "reqps", {"{{request}}": f"sum by (request) ({rate(REQUESTS + 'requests_total')})"}),
    Panel(
        "Errors",
        "cps",
        {"{{request}} {{error}}": f"sum by (request, error) ({rate(REQUESTS + 'errors_total', FAILED)})"},
        description="a request may have several, one a partition; some belong to a rebalance or a new leader",
    ),
    Panel(
        "Slowest requests in a hundred",
        "ms",
        {"{{request}} {{node}}": of(REQUESTS + "totaltimems", 'quantile="0.99",request=~"Produce|Fetch|Metadata"')},
        description="Fetch waits for records as the client asked",
    ),
    Panel("Connections", "none", {"{{node}} {{listener}}": of("kafka_server_socket_server_metrics_connection_count")}),
    Panel("Connections refused", "cps", {"{{node}}": rate("kraft_server_connection_refusals_total")}),
    Panel("Consumer groups", "none", {"{{node}}": of("kafka_coordinator_group_groupmetadatamanager_numgroups")}),
    Panel("Open files", "none", {"{{node}}": of("process_open_fds")}),
    Panel("Resident memory", "bytes", {"{{node}}": of("process_resident_memory_bytes")}),
    Panel("CPU", "percentunit", {"{{node}}": rate("process_cpu_seconds_total")}),
)

PARTITIONS: Final = (
    Panel("Topics", "none", {"": f"max({of(CONTROLLER + 'globaltopiccount')})"}, "stat"),
    Panel("Partitions", "none", {"": f"max({of(CONTROLLER + 'globalpartitioncount')})"}, "stat"),
    Panel("Offline", "none", {"": f"max({of(CONTROLLER + 'offlinepartitionscount')})"}, "stat", bad=1),
    Panel(
        "Under min.insync.replicas", "none", {"": f"sum({of(REPLICAS + 'underminisrpartitioncount')})"}, "stat", bad=1
    ),
    Panel("Under-replicated", "none", {"": f"sum({of(REPLICAS + 'underreplicatedpartitions')})"}, "stat", bad=1),
    Panel("At min.insync.replicas", "none", {"": f"sum({of(REPLICAS + 'atminisrpartitioncount')})"}, "stat"),
    Panel("Under-replicated, by leader", "none", {"{{node}}": of(REPLICAS + "underreplicatedpartitions")}),
    Panel("Moving", "none", {"{{node}}": of(REPLICAS + "reassigningpartitions")}),
    Panel("Leaders", "none", {"{{node}}": of(REPLICAS + "leadercount")}),
    Panel("Replicas", "none", {"{{node}}": of(REPLICAS + "partitioncount")}),
    Panel(
        "Not led by their preferred replica", "none", {"": f"max({of(CONTROLLER + 'preferredreplicaimbalancecount')})"}
    ),
    Panel(
        "Bytes on disk, largest topics",
        "bytes",
        {"{{topic}}": f"topk(10, sum by (topic) ({of('kafka_log_log_size')}))"},
    ),
    Panel(
        "Records in, busiest topics",
        "cps",
        {"{{topic}}": f"topk(10, sum by (topic) ({rate(TOPICS + 'messagesin_total', EACH)}))"},
    ),
    Panel("Segments", "none", {"{{node}}": f"sum by (node) ({of('kafka_log_log_numlogsegments')})"}),
)

WORKS: Final = (
    Panel("Clusters", "none", {"": f"sum({OPERATOR}clusters)"}, "stat"),
    Panel("Holder of the Lease", "none", {"{{pod}}": f"{OPERATOR}leader == 1"}, "stat"),
    Panel("Not ready", "none", {"": f'count({OPERATOR}condition{{type="Ready"}} < 1) or vector(0)'}, "stat", bad=1),
    Panel("Degraded", "none", {"": f'count({OPERATOR}condition{{type="Degraded"}} == 1) or vector(0)'}, "stat", bad=1),
    Panel(
        "Since the last pass without an error",
        "s",
        {"{{namespace}}/{{cluster}}": f"time() - {OPERATOR}last_success_timestamp_seconds"},
    ),
    Panel("Passes", "ops", {"{{result}}": f"sum by (result) (rate({OPERATOR}reconciles_total[$__rate_interval]))"}),
    Panel(
        "Duration of a pass",
        "s",
        {
            f"p{q}": f"histogram_quantile(0.{q}, sum by (le) (rate({OPERATOR}reconcile_duration_seconds_bucket"
            "[$__rate_interval])))"
            for q in (50, 99)
        },
    ),
    Panel(
        "Steps",
        "none",
        {"{{namespace}}/{{cluster}} {{step}}": f"increase({OPERATOR}steps_total[$__rate_interval]) > 0"},
    ),
    Panel("What is blocked", "none", {"{{namespace}}/{{cluster}} {{reason}}": f"{OPERATOR}blocked"}),
    Panel("Waits", "none", {"{{namespace}}/{{cluster}}": f"{OPERATOR}waits"}),
    Panel("Clusters that wait for a pass", "none", {"{{pod}}": f"{OPERATOR}queue_length"}),
    Panel(
        "Writes", "ops", {"{{verb}} {{kind}}": f"sum by (verb, kind) (rate({OPERATOR}writes_total[$__rate_interval]))"}
    ),
    Panel(
        "Refusals of the API server",
        "ops",
        {"{{code}}": f"sum by (code) (rate({OPERATOR}api_errors_total[$__rate_interval]))"},
    ),
)

BOARDS: Final = {
    "quorum": ("Quorum", QUORUM),
    "brokers": ("Brokers", BROKERS),
    "partitions": ("Partitions", PARTITIONS),
    "operator": ("Operator", WORKS),
}


def board(name: str) -> dict[str, Any]:
    """The dashboard as Grafana's JSON object."""
    title, panels = BOARDS[name]
    variables: list[dict[str, Any]] = [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    ]
    if name != "operator":
        info = "kraft_server_info"
        variables += [
            _variable("namespace", f"label_values({info}, namespace)"),
            _variable("cluster", f'label_values({info}{{namespace="$namespace"}}, cluster)'),
        ]
    return {
        "uid": f"kraft-{name}",
        "title": f"kraftcluster: {title}",
        "tags": ["kraftcluster"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "panels": _placed(panels),
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    return {"name": name, "label": name, "type": "query", "datasource": "${datasource}", "query": query, "refresh": 2}


def _placed(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """Place stats in one row, other panels in pairs."""
    stats = [panel for panel in panels if panel.kind == "stat"]
    others = [panel for panel in panels if panel.kind != "stat"]
    found: list[dict[str, Any]] = []
    for place, panel in enumerate(stats):
        width = WIDTH // len(stats)
        found.append(_panel(panel, len(found) + 1, {"x": place * width, "y": 0, "w": width, "h": STAT_HEIGHT}))
    for place, panel in enumerate(others):
        half = WIDTH // 2
        at = {"x": place % 2 * half, "y": STAT_HEIGHT + place // 2 * HEIGHT, "w": half, "h": HEIGHT}
        found.append(_panel(panel, len(found) + 1, at))
    return found


def _panel(panel: Panel, number: int, at: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.bad is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.bad}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    made: dict[str, Any] = {
        "id": number,
        "title": panel.title,
        "type": panel.kind,
        "datasource": source,
        "gridPos": at,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expr, "legendFormat": legend, "datasource": source}
            for place, (legend, expr) in enumerate(panel.queries.items())
        ],
    }
    if panel.kind == "stat":
        made["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
        if any(panel.queries):
            made["options"]["textMode"] = "name"
    return made | ({"description": panel.description} if panel.description else {})


def files() -> dict[str, str]:
    """Name and text of each file."""
    return {f"{name}.json": json.dumps(board(name), indent=1) + "\n" for name in BOARDS}


def main() -> None:
    """Write the dashboards. Files of removed dashboards stay."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
