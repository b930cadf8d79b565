"""The scrub on Spark: replicas that brokers wrote, damaged by hand."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.compat.targets import Target
from tests.unit.pipeline.scrubbed import batches, write_replica

CLIENT = "pipeline on Spark"
pytestmark = pytest.mark.timeout(900)


def found_in(spark: Any, directories: list[Path], tasks: int = 2) -> list[Any]:
    from kraft_pipeline.scrub import job
    from kraft_pipeline.scrub.layout import replicas

    frame = job.findings(job.digests(job.segments(spark, replicas(directories), tasks)))
    return sorted(frame.collect(), key=lambda row: (row["base_offset"], row["broker"]))


def test_scrub_tells_broker_segment_offset_and_bit(spark: Any, tmp_path: Path) -> None:
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


def test_scrub_of_directories_in_use_finds_only_what_was_damaged(spark: Any, cluster: Target, name: str) -> None:
    from confluent_kafka import Producer

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
