"""All scenarios and rows, by what is compared: one node, or a cluster of three controllers and three brokers."""

from __future__ import annotations

from bench import cluster, rows
from bench.rows import Row

GROUPS = {"node": rows.SCENARIOS, "cluster": cluster.SCENARIOS}
SCENARIOS = {name: function for group in GROUPS.values() for name, function in group.items()}
ROWS: dict[str, Row] = {**rows.ROWS, **cluster.ROWS}

ROWS_OF = {"node": rows.ROWS, "cluster": cluster.ROWS}
