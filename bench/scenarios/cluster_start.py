"""A cluster of three controllers and three brokers: start-up time, and memory after it."""

from __future__ import annotations

import time

from bench.clients import asking, frames
from bench.runs.row import Measured, Row, Scenario, Step
from bench.servers import members
from bench.servers.process import live_mib, rss_mib

FIRST = "cluster 3+3: formatted disks to first acks=all record"
RSS, LIVE = "cluster 3+3: memory of the six processes: RSS", "cluster 3+3: memory of the six processes: live sets"
IDLE_S = 3.0


def starts(step: Step) -> Measured:
    """The time from formatted disks to the first record that all three brokers have, and the memory then."""
    with step.server.cluster(step.folder) as cluster:
        record = frames.batch(1, 100)
        begun = time.monotonic()
        for node in cluster.nodes.values():
            node.launch()
        asking.until("the first record", lambda: members.produced(cluster, "first", record))
        first = time.monotonic() - begun
        time.sleep(step.size(IDLE_S, 0.5))
        nodes = list(cluster.nodes.values())
        rss = rss_mib(*nodes)
        return Measured({FIRST: first, RSS: rss, LIVE: live_mib(*nodes)})


SCENARIOS = [
    Scenario(
        "cluster-starts",
        "A cluster",
        (Row(FIRST, "s", False, 0.15), Row(RSS, "MiB", False, 0.15), Row(LIVE, "MiB", False)),
        starts,
        3.3,
    ),
]
