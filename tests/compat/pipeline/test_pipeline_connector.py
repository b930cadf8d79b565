"""Spark's own connector (`spark-sql-kafka-0-10`, unmodified) against both servers, and our data source beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compat.pipeline.test_pipeline_client import create, produced
from tests.compat.targets import Target
from tests.spark import require_connector, until_it_ends

CLIENT = "Spark's own connector"
XDIST_GROUP = "spark"  # with the many tests of the other clients
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
SAME: list[dict[str, str]] = [
    {"minPartitions": "5"},
    {
        "assign": '{"t": [0]}',
        "startingOffsets": '{"t": {"0": -2}}',
        "endingOffsets": '{"t": {"0": -1}}',
    },
    {
        "startingOffsets": '{"t": {"0": 95, "1": 7}}',
        "endingOffsets": '{"t": {"0": 98, "1": -1}}',
        "groupIdPrefix": "x",
        "fetchOffset.numRetries": "2",
    },
    {"startingTimestamp": "1700000050000", "endingTimestamp": "1700000060500"},
    {"startingTimestamp": "9900000000000", "startingOffsetsByTimestampStrategy": "latest"},
]
"""Of a topic `t` with 100 records in partition 0 of the seconds after 1,700,000,000, and 30 of today in partition 1."""
WRONG: list[dict[str, str]] = [
    {"subscribe": "t", "assign": '{"t": [0]}'},
    {"minPartitions": "0"},
    {"startingTimestamp": "9900000000000"},
    {"startingOffsets": "latest"},
    {"startingOffsets": '{"t": {"0": 5}}'},
    {"startingOffsets": '{"t": {"0": 5, "1": -1}}'},
    {"startingOffsets": '{"t": {"0": 5, "1": 5}}', "endingOffsets": '{"t": {"0": 4, "1": 6}}'},
    {"kafka.auto.offset.reset": "latest"},
    {"kafka.enable.auto.commit": "true"},
]
pytestmark = pytest.mark.timeout(900)  # a session starts in seconds on an idle machine


@pytest.fixture(autouse=True)
def connector() -> None:
    require_connector()


def load(reader: Any, kind: str, target: Target, **options: str) -> Any:
    """A reader of `kind`, "kafka" or "kraft", with the same options."""
    reader = reader.format(kind).option("kafka.bootstrap.servers", target.bootstrap)
    return reader.options(**options).load()


def until_the_end(frame: Any, kind: str, tmp_path: Path, **options: str) -> list[int]:
    """Run a query over the existing records; returns the rows of each micro-batch."""
    writer = frame.writeStream.format(kind).options(checkpointLocation=str(tmp_path / "checkpoint"), **options)
    return until_it_ends(writer.trigger(availableNow=True).start)


def test_connector_reads_batches(spark: Any, cluster: Target, name: str) -> None:
    create(cluster, name, 2)
    values = produced(cluster, name, 1500, "lz4")
    options = {"subscribe": name, "includeHeaders": "true", "minPartitions": "3"}
    theirs, ours = (load(spark.read, kind, cluster, **options) for kind in ("kafka", "kraft"))
    assert theirs.dtypes == ours.dtypes
    rows = theirs.orderBy("offset").collect()
    assert [bytes(row["value"]) for row in rows] == values
    assert ours.select(COLUMNS).orderBy("offset").collect() == theirs.select(COLUMNS).orderBy("offset").collect()
    times = {
        "startingOffsetsByTimestamp": f'{{"{name}": {{"0": 1700000010000, "1": 0}}}}',
        "endingTimestamp": "1700000020000",
        "startingOffsetsByTimestampStrategy": "latest",
    }
    some = [
        [row["offset"] for row in load(spark.read, kind, cluster, subscribe=name, **times).orderBy("offset").collect()]
        for kind in ("kafka", "kraft")
    ]
    assert some == [list(range(10, 20))] * 2


def test_connector_reads_streams(spark: Any, cluster: Target, name: str, tmp_path: Path) -> None:
    create(cluster, name)
    produced(cluster, name, 250)
    options = {"subscribePattern": f"{name}.*", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
    frame = load(spark.readStream, "kafka", cluster, **options)
    assert until_the_end(frame, "parquet", tmp_path, path=str(tmp_path / "out")) == [100, 100, 50]
    produced(cluster, name, 30, first=250)
    assert until_the_end(frame, "parquet", tmp_path, path=str(tmp_path / "out")) == [30]
    found = spark.read.parquet(str(tmp_path / "out")).select("offset").collect()
    assert sorted(row["offset"] for row in found) == list(range(280))


def test_connector_writes(spark: Any, cluster: Target, name: str, tmp_path: Path) -> None:
    copy = f"{name}-copy"
    for topic in (name, copy):
        create(cluster, topic, 3)
    rows = spark.range(2000).selectExpr(
        "cast(id % 20 as string) key",
        "concat('value ', id) value",
        "array(struct('n' key, cast(cast(id as string) as binary) value)) headers",
    )
    target = {"kafka.bootstrap.servers": cluster.bootstrap}
    rows.write.format("kafka").options(**target).option("topic", name).save()
    options = {"subscribe": name, "startingOffsets": "earliest", "includeHeaders": "true"}
    stream = load(spark.readStream, "kafka", cluster, **options).select("key", "value", "headers")
    assert sum(until_the_end(stream, "kafka", tmp_path, topic=copy, **target)) == 2000
    columns = ["key", "value", "partition", "headers"]
    found = load(spark.read, "kraft", cluster, subscribe=copy, includeHeaders="true").select(columns).collect()
    assert sorted(bytes(row["value"]) for row in found) == sorted(b"value %d" % i for i in range(2000))
    assert all(row["headers"][0]["value"] == row["value"].split()[1] for row in found)
    # Both partition by the key in the same way.
    ours = rows.select("key", "value")
    ours.write.format("kraft").options(**target).option("topic", name).mode("append").save()
    both = load(spark.read, "kafka", cluster, subscribe=name).select("key", "partition").distinct().collect()
    assert len(both) == 20


@pytest.mark.xdist_group("spark-kraftcluster")
def test_connector_and_ours_take_the_same_options(
    spark: Any, make_target: Callable[..., Target], tmp_path: Path
) -> None:
    from pyspark.sql.functions import spark_partition_id

    target = make_target("kraftcluster").start()
    create(target, "t", 2)
    produced(target, "t", 100)
    rows = spark.range(30).selectExpr("cast(id as string) value", "1 partition")
    rows.write.format("kafka").option("kafka.bootstrap.servers", target.bootstrap).option("topic", "t").save()

    def tasks(kind: str, options: dict[str, str]) -> list[tuple[int, int, int]]:
        """Partition, first offset and last offset of each task."""
        which = {} if "assign" in options else {"subscribe": "t"}
        frame = load(spark.read, kind, target, **which | options)
        found: dict[int, list[Any]] = {}
        for row in frame.select("partition", "offset", spark_partition_id().alias("task")).collect():
            found.setdefault(row["task"], []).append(row)
        return sorted((some[0]["partition"], some[0]["offset"], some[-1]["offset"]) for some in found.values())

    for options in SAME:
        theirs, ours = (tasks(kind, options) for kind in ("kafka", "kraft"))
        assert theirs == ours, options
    for options in WRONG:
        for kind in ("kafka", "kraft"):
            with pytest.raises(Exception, match=r"."):
                print(kind, options, "is right:", tasks(kind, options))
    for kind in ("kafka", "kraft"):
        stream = load(
            spark.readStream, kind, target, subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="55"
        )
        assert until_the_end(stream, "parquet", tmp_path / kind, path=str(tmp_path / kind / "out")) == [54, 54, 22]
        # Each sink gets all columns of the other source, and ignores those that a record does not have.
        create(target, f"copy-{kind}", 2)
        whole = load(spark.read, "kraft", target, subscribe="t", includeHeaders="true").drop("topic")
        whole.write.format(kind).option("kafka.bootstrap.servers", target.bootstrap).option(
            "topic", f"copy-{kind}"
        ).mode("append").save()
    columns = ["key", "value", "partition", "headers"]
    theirs, ours = (
        load(spark.read, "kafka", target, subscribe=f"copy-{kind}", includeHeaders="true").select(columns).collect()
        for kind in ("kafka", "kraft")
    )
    assert len(theirs) == 130
    assert sorted(theirs, key=repr) == sorted(ours, key=repr)


@pytest.mark.xdist_group("spark-kraftcluster")
def test_connector_reads_committed_records(spark: Any, make_target: Callable[..., Target], tmp_path: Path) -> None:
    """Apache Kafka's coordinator wrote transactions into a data directory, which our node then serves."""
    from confluent_kafka import Producer

    writer = make_target("apache", "writer").start()
    create(writer, "t")
    producer = Producer({"bootstrap.servers": writer.bootstrap, "transactional.id": "t"})
    producer.init_transactions(60)
    for batch, commit in enumerate([True, False, True, False]):
        producer.begin_transaction()
        for i in range(50):
            producer.produce("t", f"{batch}.{i}", partition=0)
        producer.flush(60)
        (producer.commit_transaction if commit else producer.abort_transaction)(60)
    produced(writer, "t", 20)
    options = {"subscribe": "t", "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    expected = load(spark.read, "kafka", writer, **options).orderBy("offset").collect()
    assert len(expected) == 120
    assert {bytes(row["value"]) for row in expected[:100]} == {f"{b}.{i}".encode() for b in (0, 2) for i in range(50)}
    assert writer.stop() in {0, 143}
    server = make_target("kraftcluster", "reader", **{"log.dirs": str(writer.data)}).start()
    for kind in ("kafka", "kraft"):
        assert load(spark.read, kind, server, subscribe="t").count() == 220
        assert load(spark.read, kind, server, **options).orderBy("offset").collect() == expected
        stream = load(spark.readStream, kind, server, maxOffsetsPerTrigger="70", **options)
        until_the_end(stream, "parquet", tmp_path / kind, path=str(tmp_path / kind / "out"))
        found = spark.read.parquet(str(tmp_path / kind / "out")).orderBy("offset").collect()
        assert [row["offset"] for row in found] == [row["offset"] for row in expected]
