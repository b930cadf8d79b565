"""The data source beside Spark's connector.

`python -m bench.measurements.pipeline_spark [--only ROW] [--rounds N] [--minutes N] [--write PAGE]`

Our data source and Spark's own connector to Kafka in one session against one node of ours, in turns, after rounds that
warm up. The measure is processor seconds of Spark's JVM and of the Python workers together, without the node. The
connector works in the JVM and we in Python. A figure above 1 is the factor by which the connector takes more. Of
micro-batches what counts is how long they take by Spark's own account. Each round prints a line of progress. If time
is short, fewer rounds are made. A pass that hangs ends the run with the figures so far.
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException
from rich.console import Console
from rich.table import Table

from bench.measurements.pipeline import MIB, SIZES, values, write_ours
from bench.report import marked
from kraft_pipeline.sources.kraft import register
from tests.compat.targets import Ours, Target
from tools import peers

AIMS: Final = {
    "read 100 B": 1.0,
    "read 1 KiB": 0.8,
    "topic to Parquet 100 B": 1.0,
    "topic to Parquet 1 KiB": 0.9,
    "sink 100 B": 0.9,
    "sink 1 KiB": 0.75,
}
LATENCY: Final = "micro-batch of 200 records"
LATENCY_AIM: Final = 2.0
BATCHES: Final = 16
"""Micro-batches measured per round, after a few that warm up."""
RESERVE_S: Final = 30.0
"""Time reserved for a clean end."""
KINDS: Final = ("kraft", "kafka")
WARM_UP: Final = 2
"""Rounds that do not count: the JVM compiles, and Spark's workers start."""
PARTITIONS: Final = 2
TICKS: Final = os.sysconf("SC_CLK_TCK")
HEAD: Final = ["", "`kraft`", "`kafka`", "kafka/kraft (spread)", "aim", "reached"]


class TimeIsUpError(Exception):
    """The run's time is used up."""


@dataclass
class Comparison:
    """The pairs of one comparison, one per round: ours, the connector's."""

    name: str
    unit: str
    aim: float
    per: float = 1.0
    """Divisor of figures for display."""
    measure: str = "s CPU"
    pairs: list[tuple[float, float]] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """The connector's figure divided by ours, of each round, ascending. Above 1, ours is cheaper."""
        return sorted(theirs / ours for ours, theirs in self.pairs)

    @property
    def reached(self) -> bool:
        """Whether the median ratio reaches the aim; False if nothing was measured."""
        return bool(self.pairs) and statistics.median(self.ratios) >= self.aim

    def cells(self) -> list[str]:
        """The cells, in the order of `HEAD`."""
        aim = f"≥ {self.aim:.2g}"
        if not self.pairs:
            return [self.name, "-", "-", "not measured", aim, "**no**"]
        ours, theirs = (statistics.median(pair[i] for pair in self.pairs) / self.per for i in (0, 1))
        ratio = f"{statistics.median(self.ratios):.2f} ({self.ratios[0]:.2f}-{self.ratios[-1]:.2f})"
        figures = [f"{value:.3g} {self.unit}" for value in (ours, theirs)]
        return [self.name, *figures, ratio, aim, "yes" if self.reached else "**no**"]


def spent(root: int, *, but: int) -> float:
    """CPU seconds of all processes below `root`, including ended processes; without `but` and its children."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(folder.name)] = int(fields[1])
            ticks[int(folder.name)] = sum(map(int, fields[11:15]))
    total = 0
    for pid in parents:
        at = pid
        while at not in {0, root, but} and at in parents:
            at = parents[at]
        total += ticks[pid] if at == root and pid != root else 0
    return total / TICKS


def session() -> Any:
    """Spark on two cores, with both data sources."""
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
        "spark.python.daemon.module": "bench.measurements.spark_daemon",
        "spark.python.authenticate.socketTimeout": "240s",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


class Bench:
    """One session and one node; `run` fills `rows`."""

    def __init__(self, spark: Any, target: Target, folder: Path, mib: int, rounds: int, until: float) -> None:
        self._spark, self._target, self._folder = spark, target, folder
        self._mib, self._rounds, self._until = mib, rounds, until
        self._begun = time.monotonic()
        gigabytes = mib * MIB / 1e9
        self.rows = [Comparison(name, "s/GB", aim, gigabytes) for name, aim in AIMS.items()]
        self.rows.append(Comparison(LATENCY, "ms", 1 / LATENCY_AIM, measure="ms"))

    def run(self, only: str = "") -> None:
        """Run the rows with `only` in their names; a row that fails is reported and skipped. Raises TimeIsUpError."""
        self.rows = [row for row in self.rows if only in row.name]
        for row in self.rows:
            try:
                self._compare(row, self._measure(row))
            except PySparkException as e:
                self._print(f"{row.name}: {e}")

    def _print(self, text: str) -> None:
        print(f"[{time.monotonic() - self._begun:4.0f} s] {text}", flush=True)

    def _topics(self, *names: str) -> None:
        admin = AdminClient({"bootstrap.servers": self._target.bootstrap})
        for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
            made.result(60)

    @functools.cache  # noqa: B019 - there is one
    def _fill(self, size: int) -> None:
        self._print(f"{self._mib} MiB of values of {size} bytes are written")
        self._topics(f"read{size}", f"kraft{size}", f"kafka{size}")
        write_ours(self._target.bootstrap, f"read{size}", values(size, self._mib * MIB // size))
        self._frame("kraft", f"read{size}").select("value").write.parquet(f"{self._folder}/rows{size}")

    def _frame(self, kind: str, topic: str) -> Any:
        reader = self._spark.read.format(kind).option("kafka.bootstrap.servers", self._target.bootstrap)
        return reader.option("subscribe", topic).load()

    def _measure(self, row: Comparison) -> Callable[[str], float]:
        """The measuring function of a row, given the kind."""
        if row.name == LATENCY:
            self._topics("live")
            return self._micro_batches
        what, _, size_name = row.name.rpartition(" ")
        what, _, number = what.rpartition(" ")
        size = SIZES[f"{number} {size_name}"]
        self._fill(size)
        one = {"read": self._read, "topic to Parquet": self._to_parquet, "sink": self._sink}[what]
        return lambda kind: self._spent_by(one, kind, size)

    def _read(self, kind: str, size: int) -> None:
        self._frame(kind, f"read{size}").write.format("noop").mode("overwrite").save()

    def _to_parquet(self, kind: str, size: int) -> None:
        self._frame(kind, f"read{size}").write.mode("overwrite").parquet(f"{self._folder}/parquet-{kind}")

    def _sink(self, kind: str, size: int) -> None:
        writer = self._spark.read.parquet(f"{self._folder}/rows{size}").write.format(kind).mode("append")
        writer = writer.option("kafka.bootstrap.servers", self._target.bootstrap).option("topic", f"{kind}{size}")
        writer.option("kafka.batch.size", "262144").option("kafka.linger.ms", "20").save()

    def _compare(self, row: Comparison, measure: Callable[[str], float]) -> None:
        """Run warm-up rounds, then as many rounds as there is time for, at least one."""
        waiting = sum(not other.pairs for other in self.rows)
        share = (self._until - time.monotonic()) / waiting + time.monotonic()
        for number in range(1 - WARM_UP, self._rounds + 1):
            before = time.monotonic()
            ours, theirs = (measure(kind) for kind in KINDS)
            if number > 0:
                row.pairs.append((ours, theirs))
            took = time.monotonic() - before
            which = f"round {number}" if number > 0 else "warming up"
            self._print(f"{row.name}, {which}: kraft {ours:.3g}, kafka {theirs:.3g} {row.measure} ({took:.1f} s)")
            if row.pairs and time.monotonic() + took > share:
                break

    def _spent_by(self, one: Callable[[str, int], None], kind: str, size: int) -> float:
        assert self._target.process is not None
        node = self._target.process.pid
        before = spent(os.getpid(), but=node)
        one(kind, size)
        return spent(os.getpid(), but=node) - before

    def _micro_batches(self, kind: str) -> float:
        """Milliseconds of a micro-batch of a query that continues from its checkpoint: the median of the last
        batches."""
        reader = self._spark.readStream.format(kind).option("kafka.bootstrap.servers", self._target.bootstrap)
        writer = reader.option("subscribe", "live").load().writeStream.format("noop")
        writer = writer.option("checkpointLocation", f"{self._folder}/checkpoint-{kind}")
        query = writer.trigger(processingTime="0 seconds").start()
        producer = Producer({"bootstrap.servers": self._target.bootstrap})
        found: dict[int, float] = {}
        try:
            while len(found) < BATCHES + BATCHES // 4:
                failed = query.exception()
                if failed is not None:
                    raise failed
                for i in range(200):
                    producer.produce("live", b"%d" % i)
                producer.flush(30)
                time.sleep(0.3)
                for progress in query.recentProgress:
                    if progress.numInputRows:
                        found[progress.batchId] = progress.durationMs["triggerExecution"]
        finally:
            query.stop()
        return statistics.median([found[batch] for batch in sorted(found)][-BATCHES:])


def page(rows: list[Comparison], mib: int) -> str:
    """The page's text between the marks."""
    short = [row.name for row in rows if not row.reached]
    rounds = max(len(row.pairs) for row in rows)
    return (
        f"{mib} MiB of values in {PARTITIONS} partitions, medians of up to {rounds} interleaved rounds on "
        f"{marked.machine(Path(tempfile.gettempdir()))}. Processor seconds of JVM and Python workers a GB of values; "
        f"milliseconds of a micro-batch, of {BATCHES} in each round.\n"
        f"{len(rows) - len(short)} of {len(rows)} rows reach their aim"
        + (f"; short of it: {'; '.join(short)}." if short else ".")
        + f"\n\n{marked.grid(HEAD, [row.cells() for row in rows])}"
    )


def show(rows: list[Comparison]) -> None:
    """Print the table."""
    table = Table(*(name.replace("`", "") for name in HEAD))
    for row in rows:
        table.add_row(*(cell.replace("**", "") for cell in row.cells()))
    Console().print(table)


def up(number: int, frame: Any) -> None:  # noqa: ARG001 - a handler's
    """The alarm's handler."""
    raise TimeIsUpError


def main() -> int:
    """The command line; exit code 1 if an aim is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.measurements.pipeline_spark", description=__doc__)
    parser.add_argument("--only", default="", metavar="ROW", help="rows whose names contain this")
    parser.add_argument("--mib", type=int, default=256, help="MiB of values in each topic")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=15.0, help="time limit of the run")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the table into this page")
    options = parser.parse_args()
    if not peers.connector_installed():
        print("Spark's connector is not here: `make peers` installs it", file=sys.stderr)
        return 2
    until = time.monotonic() + options.minutes * 60
    signal.signal(signal.SIGALRM, up)
    signal.alarm(int(options.minutes * 60))
    with tempfile.TemporaryDirectory(prefix="kraft-bench-") as folder:
        target = Ours("ours", Path(folder) / "node", {"log.segment.bytes": str(1 << 30)}).start()
        spark = session()
        # The alarm ends only what hangs: rounds end in time by themselves.
        bench = Bench(spark, target, Path(folder), options.mib, options.rounds, until - RESERVE_S)
        try:
            bench.run(options.only)
        except TimeIsUpError:
            print(f"{options.minutes:g} minutes are up", file=sys.stderr)
        except PySparkException as e:
            print(f"the rest has failed: {e}", file=sys.stderr)
        finally:
            signal.alarm(0)
            target.kill()
            spark.stop()
    show(bench.rows)
    if options.write:
        marked.write(options.write, "spark", page(bench.rows, options.mib))
        print(f"written: {options.write}")
    return int(not all(row.reached for row in bench.rows))


if __name__ == "__main__":
    sys.exit(main())
