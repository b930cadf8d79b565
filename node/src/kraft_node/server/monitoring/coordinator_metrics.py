"""The metrics of a coordinator's runtime, under the names of Kafka's group-coordinator-metrics.

Kafka's metrics of event queues and coordinator threads are missing: operations run at once on the node's loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kraft_node.broker.coordinators.runtime.shard import Phase

if TYPE_CHECKING:
    from kraft_node.base.histogram import Histogram
    from kraft_node.broker.coordinators.runtime.engine import Runtime
    from kraft_node.server.monitoring.metrics import Family

STATES: Final = (Phase.LOADING, Phase.ACTIVE, Phase.FAILED)
SHARES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))


def runtime_metrics(kind: str, runtime: Runtime[Any], now_ms: int) -> Iterator[Family]:
    """The families of the coordinator `kind` (group, transaction)."""
    prefix = f"kafka_server_{kind}_coordinator_metrics_"
    phases = [shard.phase for shard in runtime.shards.values()]
    partitions = [((("state", state.value),), float(phases.count(state))) for state in STATES]
    yield prefix + "num_partitions", "gauge", partitions
    measures = runtime.measures
    loads = measures.recent_loads(now_ms)
    if loads:
        yield prefix + "partition_load_time_max", "gauge", (((), float(max(loads))),)
        yield prefix + "partition_load_time_avg", "gauge", (((), sum(loads) / len(loads)),)
    yield prefix + "batch_flush_rate_total", "counter", (((), float(measures.batches)),)
    for name, value in _shares(measures.purgatory_ms, now_ms):
        yield prefix + f"event_purgatory_time_ms_{name}", "gauge", (((), value),)
    for name, value in _shares(measures.linger_ms, now_ms):
        yield prefix + f"batch_linger_time_ms_{name}", "gauge", (((), value),)


def _shares(histogram: Histogram, now_ms: int) -> Iterator[tuple[str, float]]:
    histogram.turn(now_ms)
    if histogram.count:
        for name, value in histogram.quantiles(SHARES):
            yield name, float(value)
