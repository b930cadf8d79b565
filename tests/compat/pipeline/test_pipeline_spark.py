"""`format("kraft")` in a real Spark session of two threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraft_protocol.client.cluster import Cluster, Settings
from tests.compat.pipeline.test_pipeline_client import create, produced
from tests.compat.targets import Target
from tests.spark import until_it_ends

CLIENT = "pipeline on Spark"
XDIST_GROUP = "spark"  # with the many tests of the other clients
pytestmark = pytest.mark.timeout(900)  # a session starts in seconds on an idle machine


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
    none = f'{{"{name}": {{"0": 9}}}}'
    assert source(spark.read, cluster, name, startingOffsets=none, endingOffsets=none).collect() == []


def test_stream_in_bounded_micro_batches(spark: Any, cluster: Target, name: str, tmp_path: Path) -> None:
    create(cluster, name)
    produced(cluster, name, 250)
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def run() -> list[int]:
        """Run until no records are left; returns the rows of each micro-batch."""
        frame = source(spark.readStream, cluster, name, startingOffsets="earliest", maxOffsetsPerTrigger="100")
        writer = frame.writeStream.format("parquet").option("path", out).option("checkpointLocation", checkpoint)
        return until_it_ends(writer.trigger(availableNow=True).start)

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
    writer = stream.writeStream.format("kraft").options(**target).option("topic", copy)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    until_it_ends(writer.trigger(availableNow=True).start)
    found = source(spark.read, cluster, copy, columns="key,value").selectExpr("cast(value as string) v").collect()
    assert sorted(row["v"] for row in found) == sorted(f"value {i}" for i in range(2000))


def test_wrong_options_are_reported(spark: Any, cluster: Target, name: str) -> None:
    with pytest.raises(Exception, match=rf"topic {name}: UNKNOWN_TOPIC_OR_PARTITION"):
        source(spark.read, cluster, name).collect()
    with pytest.raises(Exception, match="exactly one of the options subscribe, subscribePattern, assign"):
        source(spark.read, cluster, name, assign='{"a": [0]}').collect()


def start(frame: Any, folder: Path, *, available_now: bool = True) -> Any:
    """Start a query into Parquet files."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return (writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="0 seconds")).start()


def offsets_in(spark: Any, folder: Path) -> list[int]:
    return sorted(row["offset"] for row in spark.read.parquet(str(folder / "out")).select("offset").collect())


def wait_until(what: str, question: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not question():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def test_a_group_shows_how_far_a_stream_is(spark: Any, cluster: Target, name: str, tmp_path: Path) -> None:
    from confluent_kafka import Consumer, TopicPartition

    create(cluster, name, 2)
    produced(cluster, name, 120)
    options = {"startingOffsets": "earliest", "commitOffsets": "true", "kafka.group.id": name}
    until_it_ends(
        lambda: start(source(spark.readStream, cluster, name, maxOffsetsPerTrigger="50", **options), tmp_path)
    )
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": name})
    found = consumer.committed([TopicPartition(name, 0), TopicPartition(name, 1)], timeout=60)
    consumer.close()
    assert [t.offset for t in found] == [120, 0]


def test_a_recreated_topic_is_not_read_as_the_old(spark: Any, cluster: Target, name: str, tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient

    create(cluster, name)
    produced(cluster, name, 40)
    until_it_ends(lambda: start(source(spark.readStream, cluster, name, startingOffsets="earliest"), tmp_path))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (gone,) = admin.delete_topics([name]).values()
    gone.result(60)
    with Cluster(Settings(cluster.bootstrap)) as client:
        wait_until("the topic is gone", lambda: name not in client.topics([name]))
    create(cluster, name)
    produced(cluster, name, 60)  # more than the earlier topic had, so that the old offsets look valid
    with pytest.raises(Exception, match="has been deleted and made again"):
        until_it_ends(lambda: start(source(spark.readStream, cluster, name), tmp_path))
    until_it_ends(lambda: start(source(spark.readStream, cluster, name, failOnDataLoss="false"), tmp_path))
    assert offsets_in(spark, tmp_path) == sorted([*range(40), *range(60)])


def test_records_deleted_before_a_stream_read_them_are_a_data_loss(
    spark: Any, cluster: Target, name: str, tmp_path: Path
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    create(cluster, name)
    produced(cluster, name, 20)
    until_it_ends(lambda: start(source(spark.readStream, cluster, name, startingOffsets="earliest"), tmp_path))
    produced(cluster, name, 80, first=20)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(name, 0, 50)]).values()
    deleted.result(60)
    with pytest.raises(Exception, match="offset 20 is gone, the log has 50 to 100 now"):
        until_it_ends(lambda: start(source(spark.readStream, cluster, name), tmp_path))
    until_it_ends(lambda: start(source(spark.readStream, cluster, name, failOnDataLoss="false"), tmp_path))
    assert offsets_in(spark, tmp_path) == [*range(20), *range(50, 100)]


def test_a_stream_survives_a_restart_of_the_broker(
    spark: Any, make_target: Callable[..., Target], server_name: str, tmp_path: Path
) -> None:
    """Small micro-batches wait for a delay as well as for records; the stream survives a restart of the broker."""
    target = make_target(server_name).start()
    create(target, "t", 2)
    produced(target, "t", 100)
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "100", "maxTriggerDelay": "2s"}
    query = start(source(spark.readStream, target, "t", **options), tmp_path, available_now=False)
    try:
        wait_until("the first micro-batch", lambda: len(query.recentProgress) and query.recentProgress[0].numInputRows)
        target.stop()
        target.start()
        produced(target, "t", 30, first=100)
        wait_until("the second one", lambda: sum(p.numInputRows for p in query.recentProgress) == 130)
    finally:
        query.stop()
    assert query.exception() is None
    assert offsets_in(spark, tmp_path) == list(range(130))
    assert [p.numInputRows for p in query.recentProgress if p.numInputRows] == [100, 30]
