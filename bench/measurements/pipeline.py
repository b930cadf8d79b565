"""`python -m bench.measurements.pipeline [--mib N] [--rounds N]`: client and codec beside confluent-kafka's.

Both read the same topic of our node into the objects of their users: Arrow columns here, message objects there. Both
write the same records to it. The measure is processor seconds of the client's process, because the node is the same
for both. Also the codec alone, from a response in memory. No Spark: the comparison with Spark's own connector is
another bench.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from kraft_pipeline.codec import Decoder
from kraft_pipeline.sinks.options import parse_sink
from kraft_pipeline.sinks.rows import RowWriter
from kraft_protocol.client.cluster import Cluster, Settings
from kraft_protocol.client.fetch import Range, fetch_range
from tests.compat.targets import Ours

SIZES = {"100 B": 100, "1 KiB": 1024}
MIB = 1 << 20
Figures = dict[str, float]


def values(size: int, count: int) -> pa.Array:
    """Byte strings of `size` on average, between 3/4 and 5/4 of it."""
    sizes = np.random.default_rng(1).integers(size * 3 // 4, size * 5 // 4, count)
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    data = (b"the quick brown fox jumps over the lazy dog " * (int(bounds[-1]) // 44 + 1))[: int(bounds[-1])]
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data)])


def read_ours(bootstrap: str, topic: str, count: int) -> int:
    """Read columns of all records with the data source's defaults."""
    decoder = Decoder(topic, 0)
    rows = 0
    with Cluster(Settings(bootstrap)) as cluster:
        wanted = Range(topic, cluster.topic(topic).id, 0, 0, count)
        for chunk in fetch_range(cluster, wanted):
            rows += sum(part.num_rows for part in decoder.decode(chunk.records, chunk.offset, count, chunk.aborted))
    return rows


def read_theirs(bootstrap: str, topic: str, count: int) -> int:
    """Read key, value, offset and timestamp of all messages."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "check.crcs": True,
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 8 * MIB,
            "queued.max.messages.kbytes": 64 * 1024,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    rows = 0
    while rows < count:
        messages = consumer.consume(10_000, 10)
        for message in messages:
            message.key(), message.value(), message.offset(), message.timestamp()
        rows += len(messages)
    consumer.close()
    return rows


def write_ours(bootstrap: str, topic: str, data: pa.Array) -> int:
    """Write Arrow batches of 10,000 rows, like the batches of a task of the sink."""
    with Cluster(Settings(bootstrap)) as cluster:
        writer = RowWriter(cluster, parse_sink({"kafka.bootstrap.servers": bootstrap, "topic": topic}, ["value"]))
        for rows in pa.table({"value": data}).to_batches(max_chunksize=10_000):
            writer.write(rows)
        writer.close()
        return writer.rows


def write_theirs(bootstrap: str, topic: str, data: pa.Array) -> int:
    """Write with an idempotent producer with batches of our size."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 256 * 1024,
            "queue.buffering.max.messages": 10_000_000,
        }
    )
    count = 0
    for rows in pa.table({"value": data}).to_batches(max_chunksize=10_000):
        for value in rows.column(0).to_pylist():
            producer.produce(topic, value, partition=0)
        count += rows.num_rows
        producer.poll(0)
    assert producer.flush(120) == 0
    return count


def in_own_process(what: str, bootstrap: str, topic: str, size: int, count: int) -> Figures:
    """CPU and wall seconds of one pass in a fresh process, without imports."""
    command = [
        sys.executable,
        "-m",
        "bench.measurements.pipeline",
        "--pass",
        what,
        bootstrap,
        topic,
        str(size),
        str(count),
    ]
    done = subprocess.run(command, capture_output=True, check=True, timeout=600)
    found: Figures = json.loads(done.stdout)
    return found


def one_pass(what: str, bootstrap: str, topic: str, size: int, count: int) -> Figures:
    """The function that `in_own_process` runs."""
    passes: dict[str, Callable[..., int]] = {
        "read-ours": read_ours,
        "read-theirs": read_theirs,
        "write-ours": write_ours,
        "write-theirs": write_theirs,
    }
    given: Any = values(size, count) if what.startswith("write") else count
    cpu, wall = time.process_time(), time.monotonic()
    rows = passes[what](bootstrap, topic, given)
    taken = {"cpu": time.process_time() - cpu, "wall": time.monotonic() - wall}
    assert rows == count, f"{what}: {rows} of {count} rows"
    return taken


def codec_alone(bootstrap: str, topic: str, count: int) -> float:
    """CPU seconds for decoding responses in memory, the minimum of five passes."""
    with Cluster(Settings(bootstrap)) as cluster:
        wanted = Range(topic, cluster.topic(topic).id, 0, 0, count)
        chunks = list(fetch_range(cluster, wanted))
    decoder = Decoder(topic, 0)
    best = float("inf")
    for _ in range(5):
        begun = time.process_time()
        rows = sum(p.num_rows for c in chunks for p in decoder.decode(c.records, c.offset, count, c.aborted))
        best = min(best, time.process_time() - begun)
        assert rows == count
    return best


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.measurements.pipeline", description=__doc__)
    parser.add_argument("--mib", type=int, default=128, help="MiB of values in each topic")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pass", dest="one", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        what, bootstrap, topic, size, count = options.one
        print(json.dumps(one_pass(what, bootstrap, topic, int(size), int(count))))
        return 0
    table = Table("pass", "ours s CPU/GB", "confluent s CPU/GB", "times cheaper (spread)", "ours records/s")
    alone = Table("codec alone", "MB/s", "records/s")
    with tempfile.TemporaryDirectory(prefix="kraft-bench-") as folder:
        target = Ours("ours", Path(folder) / "node", {"log.segment.bytes": str(1 << 30)}).start()
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        for name, size in SIZES.items():
            count = options.mib * MIB // size
            topics = [f"read{size}", f"ours{size}", f"theirs{size}"]
            for made in admin.create_topics([NewTopic(t, 1, 1) for t in topics]).values():
                made.result(60)
            in_own_process("write-theirs", target.bootstrap, topics[0], size, count)
            for kind in ("read", "write"):
                pairs = []
                for _ in range(options.rounds):
                    ours = in_own_process(
                        f"{kind}-ours", target.bootstrap, topics[0 if kind == "read" else 1], size, count
                    )
                    theirs = in_own_process(
                        f"{kind}-theirs", target.bootstrap, topics[0 if kind == "read" else 2], size, count
                    )
                    pairs.append((ours["cpu"], theirs["cpu"]))
                ratios = sorted(theirs / ours for ours, theirs in pairs)
                gigabytes = count * size / 1e9
                mine, other = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
                table.add_row(
                    f"{kind} {name}",
                    f"{mine / gigabytes:.2f}",
                    f"{other / gigabytes:.2f}",
                    f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})",
                    f"{count / mine:,.0f}",
                )
            seconds = codec_alone(target.bootstrap, topics[0], count)
            alone.add_row(name, f"{count * size / seconds / 1e6:,.0f}", f"{count / seconds:,.0f}")
        target.kill()
    console = Console()
    console.print(table)
    console.print(alone)
    return 0


if __name__ == "__main__":
    sys.exit(main())
