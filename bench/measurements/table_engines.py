"""The engines of a KafkaTable: a query of Spark beside the loop without Spark (`engine.mode: inline`).

`python -m bench.measurements.table_engines [--rounds N] [--sizes N,N] [--kind delta]` writes batches of some sizes from
two partitions of a node of ours into a table, with both engines in turns, as `table run --once` does. It prints medians
over all batches after WARM batches of a run: processor seconds of a batch (driver, JVM and Python workers, without the
node), and its elapsed seconds, from one commit to the next. Spark's first run is not counted.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.measurements.pipeline_spark import spent
from kraft_pipeline.tables.engines.engine import Engine, InlineEngine, SparkEngine
from kraft_pipeline.tables.runner import Progress, Runner
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.specs.table_spec import EngineSpec
from tests.compat.targets import Ours

SIZES: Final = (200, 20_000, 400_000)
"""Records of a batch."""
BATCHES: Final = {200: 30, 20_000: 16, 400_000: 6}
OTHERWISE: Final = 10
WARM: Final = 2
"""Batches at the beginning of a run that do not count: the table is created, and workers start."""
VALUE: Final = b'{"id": %012d, "text": "' + b"x" * 62 + b'"}'
"""100 bytes."""


def fill(server: Ours, topic: str, count: int) -> None:
    """Create a topic with `count` records."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 10**7})
    for number in range(count):
        producer.produce(topic, VALUE % number, partition=number % 2)
        if not number % 10_000:
            producer.poll(0)
    assert producer.flush(120) == 0


def run(server: Ours, topic: str, size: int, kind: str, engine: Engine, path: str) -> list[tuple[float, float]]:
    """Write the topic into a new table. Returns processor and elapsed seconds of each batch."""
    document = {
        "apiVersion": table_spec.API_VERSION,
        "kind": table_spec.KIND,
        "metadata": {"name": "engines"},
        "spec": {
            "bootstrapServers": server.bootstrap,
            "topics": {"names": [topic]},
            "value": {"format": "json", "schema": {"id": "long", "text": "string"}},
            "table": {"format": kind, "path": path},
            "commit": {"maxRows": size, "maxDelay": "1ms"},
            "engine": {"mode": "inline"},
        },
    }
    assert server.process is not None
    node, times = server.process.pid, list[tuple[float, float]]()

    def report(_: Progress) -> None:
        own = resource.getrusage(resource.RUSAGE_SELF)
        times.append((own.ru_utime + own.ru_stime + spent(os.getpid(), but=node), time.monotonic()))

    Runner(table_spec.parse(document), engine, report=report).run(once=True)
    return [(b[0] - a[0], b[1] - a[1]) for a, b in zip(times[WARM:], times[WARM + 1 :], strict=False)]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--kind", default="delta", choices=("delta", "iceberg", "parquet"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = Ours("kraftcluster", Path(folder) / "server")
        server.start()
        try:
            _measure(server, Path(folder), options)
        finally:
            server.kill()
    return 0


def _measure(server: Ours, folder: Path, options: Any) -> None:
    spec = EngineSpec(mode="local", spark={"spark.master": "local[2,4]", "spark.driver.memory": "1g"})
    engines: dict[str, Engine] = {"inline": InlineEngine(), "query": SparkEngine.start("engines", spec)}
    for size in map(int, options.sizes.split(",")):
        topic, found = f"t{size}", {name: list[tuple[float, float]]() for name in engines}
        fill(server, topic, size * BATCHES.get(size, OTHERWISE))
        run(server, topic, size, options.kind, engines["query"].another(), str(folder / f"warm{size}"))
        for number in range(options.rounds):
            for name, engine in engines.items():
                path = str(folder / f"{name}{size}-{number}")
                found[name] += run(server, topic, size, options.kind, engine.another(), path)
        for name, batches in found.items():
            cpu, elapsed = (median(one[at] for one in batches) for at in (0, 1))
            low, high = (edge(one[0] for one in batches) for edge in (min, max))
            text = f"{cpu:7.3f} s CPU ({low:.3f} to {high:.3f}), {elapsed:6.3f} s elapsed"
            print(f"{options.kind} {size:>7} records {name:>6}: {text}, {len(batches)} batches", flush=True)
    engines["query"].close()


if __name__ == "__main__":
    raise SystemExit(main())
