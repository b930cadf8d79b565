"""All scenarios and rows, by what is compared: one node, a cluster of three and three, controllers of a million."""

from __future__ import annotations

from bench import cluster, metadata, rows
from bench.rows import Row

GROUPS = {"node": rows.SCENARIOS, "cluster": cluster.SCENARIOS, "metadata": metadata.SCENARIOS}
SCENARIOS = {name: function for group in GROUPS.values() for name, function in group.items()}

ROWS_OF = {"node": rows.ROWS, "cluster": cluster.ROWS, "metadata": metadata.ROWS}
ROWS: dict[str, Row] = {name: row for group in ROWS_OF.values() for name, row in group.items()}

ROUNDS_MAX = {
    **dict.fromkeys(("latency", "topics", "cluster-controllers", "cluster-brokers", "cluster-catch-up"), 2),
    "metadata-snapshots": 2,
    "metadata-failover": 1,
}
"""Rounds that are enough: one of these takes minutes, and samples thousands of requests or partitions, or several
failovers."""
