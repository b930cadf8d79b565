"""Runs a scrub, from its specification to its report."""

from __future__ import annotations

import fnmatch
import os
import sys
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kraft_pipeline import pod
from kraft_pipeline.scrub import findings as kinds
from kraft_pipeline.scrub import job, wire
from kraft_pipeline.scrub.layout import replicas
from kraft_pipeline.scrub.spec import ScrubSpec
from kraft_pipeline.sources.security import security_of_file
from kraft_pipeline.tables.engines.engine import SparkEngine
from kraft_pipeline.tables.specs.table_spec import EngineSpec
from kraft_protocol.client.cluster import Settings

TASK_BYTES: Final = 256 * 1024 * 1024
"""Bytes of a task: a second or less, so that progress shows and a lost task costs little."""
SHORT: Final = {
    f"spark.{side}.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" for side in ("driver", "executor")
}
"""Settings of a single run: Python does the work, so optimized code of the JVM costs more than it saves.

A small scrub took 32 s of the JVM's processor time, mostly for the compiler, and takes 15 s with them."""
FINDINGS_MAX: Final = 10_000
"""Maximum findings in a report; more of them mean that a disk has failed."""


def session(
    master: str,
    name: str = "kraft-pipeline scrub",
    engine: EngineSpec = EngineSpec(),  # noqa: B008 - cannot change
    *,
    progress: bool = False,
) -> SparkSession:
    """Start a Spark session for a single run: on executors as pods if `engine` requests them, otherwise at `master`.

    `progress` shows progress bars of its stages. Raises SpecError.
    """
    engine = replace(engine, spark={**SHORT, **engine.spark})
    if engine.mode != "local":
        found: SparkSession = SparkEngine.start(name, engine).session
        return found
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings(master, engine, progress=progress).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def settings(master: str, engine: EngineSpec, *, progress: bool) -> dict[str, str]:
    """Spark settings of a single run at `master`."""
    found = {
        **(pod.spark_settings() if master == "local[*]" else {}),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(progress).lower(),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "64",  # a row is a segment: some hundred MB to read
        "spark.log.level": "ERROR",
        **engine.spark,
    }
    is_local = master.startswith("local")
    return {key: value for key, value in found.items() if is_local or not key.startswith("spark.driver")}


def run(spark: SparkSession, spec: ScrubSpec) -> dict[str, Any]:
    """Scrub and return a report that `json` can write.

    Raises LayoutError and ClientError if the replicas cannot be read.
    """
    began, at = time.monotonic(), datetime.now(UTC)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "64")
    if spec.directories:
        frame, sizes = _of_directories(spark, spec)
    else:
        frame, sizes = _of_brokers(spark, spec)
    frame = frame.persist()
    try:
        read = frame.agg(F.sum("bytes"), F.sum(F.length("digests"))).first()
        found = job.findings(frame).orderBy("topic", "partition", "base_offset", "broker").limit(FINDINGS_MAX + 1)
        rows = found.collect()
        late = frame.filter(F.col("behind") != job.NOT_BEHIND).select("topic", "partition", "broker", "behind")
        behind = late.distinct().orderBy("topic", "partition", "broker").collect()
    finally:
        frame.unpersist()
    is_cut_short = len(rows) > FINDINGS_MAX
    del rows[FINDINGS_MAX:]
    return {
        "name": spec.name,
        "time": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "totals": {
            "partitions": len(sizes),
            "replicas": sum(sizes.values()),
            "not_compared": sum(1 for count in sizes.values() if count == 1),
            "batches": int(read[1] or 0) // job.DIGEST_BYTES if read is not None else 0,
            "bytes": int(read[0] or 0) if read is not None else 0,
            "seconds": round(time.monotonic() - began, 3),
            "cut_short": is_cut_short,
        },
        "kinds": dict(Counter(row["kind"] for row in rows)),
        "behind": [row.asDict() for row in behind],
        "findings": [{**row.asDict(recursive=True), "meaning": kinds.KINDS[row["kind"]]} for row in rows],
    }


def _of_directories(spark: SparkSession, spec: ScrubSpec) -> tuple[DataFrame, Counter[tuple[str, int]]]:
    wanted = [r for r in replicas(spec.directories) if any(fnmatch.fnmatchcase(r.topic, t) for t in spec.topics)]
    total = sum(s.size for r in wanted for s in r.segments)
    tasks = max(spark.sparkContext.defaultParallelism, -(-total // TASK_BYTES))
    sizes = Counter((r.topic, r.partition) for r in wanted)
    return job.digests(job.segments(spark, wanted, tasks)), sizes


def _of_brokers(spark: SparkSession, spec: ScrubSpec) -> tuple[DataFrame, Counter[tuple[str, int]]]:
    settings = Settings(spec.bootstrap, client_id="kraft-scrub", security=security_of_file(spec.properties))
    rows = wire.plan(settings, spec.topics)
    sizes = Counter((row[0], row[1]) for row in rows)
    return wire.digests(wire.replicas(spark, rows), settings), sizes
