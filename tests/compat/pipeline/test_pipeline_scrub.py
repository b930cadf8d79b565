"""The scrub on Spark: replicas written by brokers, damaged by the test."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey
from tests.compat.members import Members, wait_for
from tests.compat.targets import Target
from tests.unit.pipeline.scrub.scrubbed import batches, write_replica

CLIENT = "pipeline on Spark"
SIDES = ("leader", "follower")
pytestmark = pytest.mark.timeout(900)


def found_in(spark: Any, directories: list[Path], tasks: int = 2) -> list[Any]:
    from kraft_pipeline.scrub import job
    from kraft_pipeline.scrub.layout import replicas

    frame = job.findings(job.digests(job.segments(spark, replicas(directories), tasks)))
    return sorted(frame.collect(), key=lambda row: (row["base_offset"], row["broker"]))


def test_scrub_reports_broker_segment_offset_and_bit(spark: Any, tmp_path: Path) -> None:
    made = batches(40)
    folders = []
    for broker in (1, 2, 3):
        folder = write_replica(tmp_path / f"b{broker}", broker, [made[:25], made[25:]], high_watermark=80)
        folders.append(folder)
    directories = [folder.parent for folder in folders]
    assert found_in(spark, directories) == []

    def flip(folder: Path, segment: int, batch: int, byte: int, bit: int) -> tuple[int, int]:
        path = sorted(folder.glob("*.log"))[segment]
        data = bytearray(path.read_bytes())
        at = sum(map(len, made[25 * segment : 25 * segment + batch])) + byte
        data[at] ^= 1 << bit
        path.write_bytes(data)
        return at, bit

    flipped = [
        (1, 6, flip(folders[0], 0, 3, 70, 2)),  # a value
        (2, 20, flip(folders[1], 0, 10, 2, 5)),  # the base offset
        (3, 52, flip(folders[2], 1, 1, 13, 1)),  # the leader epoch
        (1, 60, flip(folders[0], 1, 5, 10, 4)),  # the length
    ]
    rows = found_in(spark, directories)
    assert [(r["broker"], r["base_offset"], [tuple(b) for b in r["bits"]]) for r in rows] == [
        (broker, offset, [place]) for broker, offset, place in flipped
    ]
    assert [r["kind"] for r in rows] == ["crc", "offset", "epoch", "length"]
    assert {r["segment"] for r in rows if r["base_offset"] < 50} == {f"{0:020}.log"}


def test_scrub_of_directories_in_use_finds_only_damage(spark: Any, cluster: Target, name: str) -> None:
    shutil.rmtree(cluster.folder / "copy", ignore_errors=True)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": codec, "linger.ms": 5})
        for number in range(500):
            producer.produce(name, b"value %d" % number, key=str(number % 7))
        assert producer.flush(60) == 0
    assert [r for r in found_in(spark, [cluster.data]) if r["topic"] == name] == []
    copy = cluster.folder / "copy"
    shutil.copytree(cluster.data / f"{name}-0", copy / f"{name}-0")
    shutil.copy(cluster.data / "meta.properties", copy)
    (path,) = (copy / f"{name}-0").glob("*.log")
    data = bytearray(path.read_bytes())
    place = random.Random(name).randrange(len(data))
    data[place] ^= 0x08
    path.write_bytes(data)
    (row,) = found_in(spark, [copy])
    assert (row["topic"], row["broker"], row["segment"]) == (name, 1, path.name)
    assert json.loads(json.dumps([tuple(b) for b in row["bits"]])) in ([], [[place, 3]])


def test_scrub_over_the_wire_reads_the_replica_of_each_broker(spark: Any, tmp_path: Path) -> None:
    from kraft_pipeline.scrub.run import run
    from kraft_pipeline.scrub.spec import ScrubSpec

    members = Members(tmp_path, ("kraftcluster",), ("kraftcluster", "apache"))
    try:
        members.start()
        members.create("orders", replicas=2)
        producer = Producer({"bootstrap.servers": members.bootstrap, "acks": "all", "linger.ms": 20})
        for number in range(300):
            producer.produce("orders", b"value %d" % number)
            if number % 50 == 49:
                assert producer.flush(60) == 0
        spec = ScrubSpec(bootstrap=members.bootstrap, topics=("ord*",))
        report = run(spark, spec)
        assert report["findings"] == []
        assert report["totals"]["replicas"] == 2
        assert report["totals"]["bytes"] > 2 * 300 * 8
        assert report["totals"]["batches"] >= 2 * 6
        for broker in members.broker_ids:
            (path,) = members.nodes[broker].data.glob("orders-0/*.log")
            with path.open("r+b") as file:
                file.seek(path.stat().st_size - 3)
                byte = file.read(1)
                file.seek(-1, 1)
                file.write(bytes([byte[0] ^ 4]))
            found = run(spark, spec)["findings"]
            assert [(one["broker"], one["kind"], one["last_offset"]) for one in found] == [(broker, "crc", 299)]
            with path.open("r+b") as file:
                file.seek(path.stat().st_size - 3)
                file.write(byte)
    finally:
        members.stop()


def test_a_report_over_the_wire_lists_a_replica_that_is_still_copied(spark: Any, tmp_path: Path) -> None:
    from kraft_pipeline.scrub.run import run
    from kraft_pipeline.scrub.spec import ScrubSpec

    members = Members(tmp_path, ("kraftcluster",), ("kraftcluster", "kraftcluster"))
    try:
        members.start()
        members.create("late")
        producer = Producer({"bootstrap.servers": members.bootstrap, "linger.ms": 0})
        for _ in range(20):
            producer.produce("late", random.Random(0).randbytes(900_000))
            assert producer.flush(60) == 0
        _throttle(members, "late")
        (first,) = _replicas(members, "late")
        (other,) = set(members.broker_ids) - {first}
        part = m.AlterPartitionReassignmentsRequest.ReassignablePartition(0, [first, other])
        topic = m.AlterPartitionReassignmentsRequest.ReassignableTopic("late", [part])
        request = m.AlterPartitionReassignmentsRequest(topics=[topic])
        assert members.ask(first, ApiKey.ALTER_PARTITION_REASSIGNMENTS, request).error_code == 0
        wait_for("the second replica", lambda: len(_replicas(members, "late")) == 2)
        report = run(spark, ScrubSpec(bootstrap=members.bootstrap, topics=("late",)))
        assert report["findings"] == []
        (row,) = report["behind"]
        assert (row["topic"], row["partition"], row["broker"]) == ("late", 0, other)
        assert row["behind"] < 20
    finally:
        members.stop()


def _replicas(members: Members, topic: str) -> list[int]:
    found = AdminClient({"bootstrap.servers": members.bootstrap}).list_topics(topic, timeout=30)
    return list(found.topics[topic].partitions[0].replicas)


def _throttle(members: Members, topic: str) -> None:
    """Let replicas copy a byte a second."""
    admin = AdminClient({"bootstrap.servers": members.bootstrap})
    given = {(ResourceType.TOPIC, topic): {f"{side}.replication.throttled.replicas": "*" for side in SIDES}}
    rates = {f"{side}.replication.throttled.rate": "1" for side in SIDES}
    given |= {(ResourceType.BROKER, str(broker)): rates for broker in members.broker_ids}
    for (kind, name), values in given.items():
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in values.items()
        ]
        for done in admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)]).values():
            done.result(30)
