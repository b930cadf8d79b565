"""`format("kraft")` in a real Spark session of two threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.compat.targets import Target
from tests.compat.test_pipeline_client import create, produced

CLIENT = "pipeline on Spark"
pytestmark = pytest.mark.timeout(900)  # a session starts in seconds, on a machine that has nothing else to do


def source(reader: Any, target: Target, topic: str, **options: str) -> Any:
    reader = reader.format("kraft").option("kafka.bootstrap.servers", target.bootstrap).option("subscribe", topic)
    for option, value in options.items():
        reader = reader.option(option, value)
    return reader.load()


def test_batch(spark: Any, cluster: Target, name: str) -> None:
    create(cluster, name)
    values = produced(cluster, name, 2000, "zstd")
    frame = source(spark.read, cluster, name, includeHeaders="true", minPartitions="3")
    assert frame.rdd.getNumPartitions() == 3
    rows = frame.orderBy("offset").collect()
    assert [bytes(row["value"]) for row in rows] == values
    assert rows[1]["key"] == b"k1"
    assert rows[0]["key"] is None
    assert (rows[1]["topic"], rows[1]["partition"], rows[1]["offset"], rows[1]["timestampType"]) == (name, 0, 1, 0)
    assert rows[1]["timestamp"].isoformat() == "2023-11-14T22:13:21"
    assert [tuple(h) for h in rows[1]["headers"]] == [("n", b"1")]
    assert rows[0]["headers"] is None
    some = source(
        spark.read,
        cluster,
        name,
        columns="offset,value",
        startingOffsets=f'{{"{name}": {{"0": 5}}}}',
        endingOffsets=f'{{"{name}": {{"0": 9}}}}',
    )
    assert some.columns == ["value", "offset"]
    assert [row["offset"] for row in some.orderBy("offset").collect()] == [5, 6, 7, 8]


def test_stream_in_bounded_micro_batches(spark: Any, cluster: Target, name: str, tmp_path: Path) -> None:
    create(cluster, name)
    produced(cluster, name, 250)
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def run() -> list[int]:
        """Until nothing is left; the rows of each micro-batch."""
        frame = source(spark.readStream, cluster, name, startingOffsets="earliest", maxOffsetsPerTrigger="100")
        query = (
            frame.writeStream.format("parquet")
            .option("path", out)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
        assert query.exception() is None
        return [p.numInputRows for p in query.recentProgress if p.numInputRows]

    assert run() == [100, 100, 50]
    produced(cluster, name, 30, first=250)
    assert run() == [30]
    offsets = [row["offset"] for row in spark.read.parquet(out).select("offset").collect()]
    assert sorted(offsets) == list(range(280))


def test_sink_of_batches_and_streams(spark: Any, cluster: Target, name: str, tmp_path: Path) -> None:
    create(cluster, name)
    copy = f"{name}-copy"
    create(cluster, copy, 3)
    rows = spark.range(2000).selectExpr("cast(id % 20 as string) key", "concat('value ', id) value")
    target = {"kafka.bootstrap.servers": cluster.bootstrap, "kafka.compression.type": "lz4"}
    rows.write.format("kraft").options(**target).option("topic", name).mode("append").save()
    stream = source(spark.readStream, cluster, name, startingOffsets="earliest", columns="key,value")
    query = (
        stream.writeStream.format("kraft")
        .options(**target)
        .option("topic", copy)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    assert query.exception() is None
    found = source(spark.read, cluster, copy, columns="key,value").selectExpr("cast(value as string) v").collect()
    assert sorted(row["v"] for row in found) == sorted(f"value {i}" for i in range(2000))


def test_what_is_wrong_is_said(spark: Any, cluster: Target, name: str) -> None:
    with pytest.raises(Exception, match=rf"topic {name}: UNKNOWN_TOPIC_OR_PARTITION"):
        source(spark.read, cluster, name).collect()
    with pytest.raises(Exception, match="exactly one of the options subscribe, subscribePattern, assign"):
        source(spark.read, cluster, name, assign='{"a": [0]}').collect()
