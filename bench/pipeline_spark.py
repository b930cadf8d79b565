"""`python -m bench.pipeline_spark [--mib N] [--rounds N]`: our data source beside Spark's own connector to Kafka.

Both in one Spark session against one node of ours, in turns, after a pass of each for warming up. What counts is
processor seconds of Spark's JVM and of the Python workers together (the node's are the same for both), as the connector
works in the JVM and we in Python. A figure above 1 says how many times more the connector takes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from bench.pipeline import MIB, SIZES, values, write_ours
from bench.servers import fresh
from kraft_pipeline.sources.kraft import register
from tools import peers

AIMS: Final = {
    ("read", "100 B"): 1.0,
    ("read", "1 KiB"): 0.8,
    ("to Parquet", "100 B"): 1.0,
    ("to Parquet", "1 KiB"): 0.9,
    ("sink", "100 B"): 0.9,
    ("sink", "1 KiB"): 0.75,
}
LATENCY_AIM: Final = 2.0
PARTITIONS: Final = 2
TICKS: Final = os.sysconf("SC_CLK_TCK")


def spent(root: int) -> float:
    """Processor seconds of all processes below `root`, also of those that have ended."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(folder.name)] = int(fields[1])
            ticks[int(folder.name)] = sum(map(int, fields[11:15]))
    total = 0
    for pid in parents:
        at = pid
        while at not in {0, root} and at in parents:
            at = parents[at]
        total += ticks[pid] if at == root and pid != root else 0
    return total / TICKS


def session() -> Any:
    """Spark on two cores, with both."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = ",".join(map(str, sorted(peers.connector().glob("*.jar"))))
    builder = SparkSession.builder.master("local[2]").appName("bench").config("spark.jars", jars)
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.python.authenticate.socketTimeout": "240s",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def frame(spark: Any, kind: str, bootstrap: str, topic: str) -> Any:
    """All that is in a topic."""
    return spark.read.format(kind).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()


def in_turns(rounds: int, one: Callable[[str], object]) -> dict[str, list[float]]:
    """Processor seconds of each pass of each kind, the first of each left out."""
    taken: dict[str, list[float]] = {"kraft": [], "kafka": []}
    for _ in range(rounds + 1):
        for kind, seconds in taken.items():
            before = spent(os.getpid())
            one(kind)
            seconds.append(spent(os.getpid()) - before)
    return {kind: seconds[1:] for kind, seconds in taken.items()}


def latencies(spark: Any, kind: str, bootstrap: str, topic: str, folder: Path, batches: int) -> list[float]:
    """Milliseconds of micro-batches of some hundred records each."""
    source = spark.readStream.format(kind).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    query = (
        source.load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder))
        .trigger(processingTime="0 seconds")
        .start()
    )
    producer = Producer({"bootstrap.servers": bootstrap})
    found: dict[int, float] = {}
    deadline = time.monotonic() + 300
    while len(found) < batches and time.monotonic() < deadline:
        if query.exception() is not None:
            raise SystemExit(f"{kind}: {query.exception()}")
        for i in range(200):
            producer.produce(topic, b"%d" % i)
        producer.flush(30)
        time.sleep(0.3)
        for progress in query.recentProgress:
            if progress.numInputRows:
                found[progress.batchId] = progress.durationMs["triggerExecution"]
    query.stop()
    return [found[batch] for batch in sorted(found)][batches // 4 :]


def main() -> int:
    """The command line; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_spark", description=__doc__)
    parser.add_argument("--mib", type=int, default=128, help="MiB of values in each topic")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not peers.connector_installed():
        print("Spark's connector is not here: `make peers` installs it", file=sys.stderr)
        return 2
    table = Table("pass", "kraft s CPU/GB", "kafka s CPU/GB", "kafka / kraft (spread)", "aim")
    missed = 0
    spark = session()
    with tempfile.TemporaryDirectory(prefix="kraft-bench-") as folder:
        target = fresh("ours", Path(folder) / "node", **{"log.segment.bytes": str(1 << 30)}).start()
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        for name, size in SIZES.items():
            count = options.mib * MIB // size
            topics = [f"read{size}", f"kraft{size}", f"kafka{size}", f"live{size}"]
            for made in admin.create_topics([NewTopic(t, PARTITIONS, 1) for t in topics]).values():
                made.result(60)
            write_ours(target.bootstrap, topics[0], values(size, count))
            out = f"{folder}/parquet{size}"
            frame(spark, "kraft", target.bootstrap, topics[0]).select("value").write.parquet(f"{out}-rows")

            def to_parquet(kind: str, topic: str = topics[0], out: str = out) -> None:
                frame(spark, kind, target.bootstrap, topic).write.mode("overwrite").parquet(f"{out}-{kind}")

            def read(kind: str, topic: str = topics[0]) -> None:
                frame(spark, kind, target.bootstrap, topic).write.format("noop").mode("overwrite").save()

            def sink(kind: str, size: int = size, out: str = out) -> None:
                writer = spark.read.parquet(f"{out}-rows").write.format(kind).mode("append")
                writer = writer.option("kafka.bootstrap.servers", target.bootstrap).option("topic", f"{kind}{size}")
                writer.option("kafka.batch.size", "262144").option("kafka.linger.ms", "20").save()

            for what, one in {"read": read, "to Parquet": to_parquet, "sink": sink}.items():
                taken = in_turns(options.rounds, one)
                ratios = sorted(b / a for a, b in zip(taken["kraft"], taken["kafka"], strict=True))
                ratio, aim = statistics.median(ratios), AIMS[what, name]
                missed += ratio < aim
                gigabytes = count * size / 1e9
                ours, theirs = (statistics.median(taken[kind]) / gigabytes for kind in ("kraft", "kafka"))
                spread = f"{ratio:.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
                table.add_row(f"{what} {name}", f"{ours:.1f}", f"{theirs:.1f}", spread, f">= {aim}")
        Console().print(table)  # whatever becomes of the rest
        batches = {
            kind: statistics.median(latencies(spark, kind, target.bootstrap, "live100", Path(folder) / kind, 16))
            for kind in ("kafka", "kraft")
        }
        missed += batches["kraft"] > LATENCY_AIM * batches["kafka"]
        shown = (
            f"{batches['kraft']:.0f} ms",
            f"{batches['kafka']:.0f} ms",
            f"{batches['kafka'] / batches['kraft']:.2f}",
        )
        table.add_row("micro-batch, median", *shown, f">= {1 / LATENCY_AIM}")
        spark.stop()
        target.kill()
    Console().print(table)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
