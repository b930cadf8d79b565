"""Transactions and tombstones: both servers compact what Apache Kafka's transactional producers wrote."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from kraft_protocol.records.batch import iter_headers, iter_records
from tests.compat.storage.reading import consumed
from tests.compat.targets import Target
from tests.compat.tools import run_tool

CLIENT = "Compaction"
pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("compaction")]

MakeTarget = Callable[..., Target]
EAGER = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "0"}
NEVER_MS = str(10**15)
COMPACTS_S = 60
BARRIER_KEY = "file.delete.delay.ms"
"""A key that does nothing to records."""
TIME_MS = 1_700_000_000_000
CONFIG = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "6000",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": NEVER_MS,
}
"""The lag holds the cleaner until a round has been written, so both servers do the same passes."""


def producer_of(target: Target, **how: Any) -> Producer:
    """A producer whose batches have five records. It never sends fewer because of its age, only at a flush."""
    settings = {"bootstrap.servers": target.bootstrap, "linger.ms": 30_000, "batch.num.messages": 5, **how}
    return Producer(settings)


def put(producer: Producer, rng: random.Random, count: int, *, keys: int = 25) -> None:
    for _ in range(count):
        key = b"key-%d" % rng.randrange(keys)
        value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(200))
        producer.produce("t", value, key, partition=0, timestamp=TIME_MS + rng.randrange(5000))
    assert producer.flush(30) == 0


def write_transactions(target: Target, retention_ms: int) -> None:
    """Write committed and aborted transactions in parallel in several segments; plain and idempotent records."""
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    config = {**CONFIG, "delete.retention.ms": str(retention_ms)}
    admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(30)
    rng = random.Random(5)
    codecs = ("none", "lz4", "gzip", "none")
    ids = [
        producer_of(target, **{"transactional.id": f"id-{n}", "compression.type": codec})
        for n, codec in enumerate(codecs)
    ]
    plain = producer_of(target, **{"enable.idempotence": True})
    for producer in ids:
        producer.init_transactions(30)
    for _ in range(10):
        some = rng.sample(ids, 2)
        for producer in some:
            producer.begin_transaction()
        for _ in range(rng.randrange(1, 5)):
            for producer in some:
                put(producer, rng, rng.randrange(1, 8))
            put(plain, rng, rng.randrange(3))
        for producer in some:
            producer.commit_transaction(30) if rng.random() < 0.5 else producer.abort_transaction(30)
    put(plain, rng, 60, keys=40)


def more(target: Target, number: int) -> None:
    """Write another round of plain records in the same batches to each server, so that the next pass has work.

    Until librdkafka knows the partitions, it hands the records over one by one. If it is flushed meanwhile, the first
    batches are smaller on a busy machine. So the first record goes alone.
    """
    producer, rng = producer_of(target), random.Random(number)
    put(producer, rng, 1, keys=8)
    put(producer, rng, 80, keys=8)


def set_lag(target: Target, lag_ms: str) -> None:
    """Change the lag, and wait until the cleaner uses it.

    Apache Kafka puts a new metadata image in place before it hands new values to the logs; DescribeConfigs answers from
    that image. It applies images in order, so the next visible change proves that the previous change was applied.
    """
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    for key, value in (("min.compaction.lag.ms", lag_ms), (BARRIER_KEY, str(60_000 + len(lag_ms)))):
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)
        deadline = time.monotonic() + COMPACTS_S
        while value_of(admin, key) != value:  # a broker applies a change after the controller has answered
            assert time.monotonic() < deadline, target.tail()
            time.sleep(0.1)


def value_of(admin: AdminClient, key: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, "t")
    return str(admin.describe_configs([resource])[resource].result(30)[key].value)


def compact(target: Target) -> None:
    """Let the cleaner compact all but the active segment, once."""
    active = max(int(path.stem) for path in (target.data / "t-0").glob("*.log"))
    set_lag(target, "0")
    deadline = time.monotonic() + COMPACTS_S
    while f"t 0 {active}" not in (target.data / "cleaner-offset-checkpoint").read_text().splitlines():
        assert time.monotonic() < deadline, target.tail()
        time.sleep(0.1)
    set_lag(target, NEVER_MS)


def batches(data: Path) -> list[tuple[Any, ...]]:
    """The batch headers and the records; of a delete horizon only whether it is set."""
    found: list[tuple[Any, ...]] = []
    for path in sorted((data / "t-0").glob("*.log")):
        log = path.read_bytes()
        for each in iter_headers(log):
            who = (each.producer_id, each.producer_epoch, each.base_sequence, each.partition_leader_epoch)
            bits = (each.is_transactional, each.is_control, each.compression, each.delete_horizon_ms is not None)
            offsets = (each.base_offset, each.last_offset, each.count)
            when = 0 if each.is_control else each.max_timestamp
            records = [record if not each.is_control else record[2:4] for record in iter_records(log, each)]
            found.append((offsets, who, bits, when, records))
    return found


def dumped(data: Path) -> list[str]:
    """The same as kafka-dump-log prints it, without values that depend on the run."""
    files = ",".join(str(path) for path in sorted((data / "t-0").glob("*.log")))
    text = run_tool("org.apache.kafka.tools.DumpLogSegments", "--print-data-log", "--files", files).text
    lines = [line for line in text.splitlines() if line.startswith(("baseOffset", "| offset"))]
    drop = r"(position|size|crc|CreateTime|LogAppendTime): \S+ ?"
    return [re.sub(r"OptionalLong\[\d+\]", "set", re.sub(drop, "", line)) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("retention_ms", [0, 86_400_000])
def test_transactions_and_tombstones_are_compacted_as_apache_kafka_does(
    make_target: MakeTarget, retention_ms: int
) -> None:
    writer = make_target("apache", "writer", **EAGER)
    writer.start()
    write_transactions(writer, retention_ms)
    uncompacted = consumed(writer, "read_committed")
    assert writer.stop() in {0, 143}
    left: dict[str, list[Any]] = {}
    for name in ("kraftcluster", "apache"):
        target = make_target(name, name, **EAGER)
        shutil.copytree(writer.data, target.data)
        target.start()
        seen = left[name] = []
        for number in range(4):
            compact(target)
            seen.append((consumed(target, "read_committed"), consumed(target, "read_uncommitted")))
            if number == 0:
                latest = {key: value for _, key, value in uncompacted}
                assert {key: value for _, key, value in seen[-1][0]} == latest
            seen.append(batches(target.data))
            more(target, number)
        seen.append(consumed(target, "read_committed"))
        assert target.stop() in {0, 143}
        seen.append(dumped(target.data))
    for number, (ours, kafkas) in enumerate(zip(left["kraftcluster"], left["apache"], strict=True)):
        assert ours == kafkas, number
    markers = [[batch for batch in seen if batch[2][1]] for seen in left["apache"][1:8:2]]
    assert markers[0]
    assert len(markers[-1]) < len(markers[0]) if retention_ms == 0 else any(batch[2][3] for batch in markers[-1])
    for name, other in (("kraftcluster", "apache"), ("apache", "kraftcluster")):
        again = make_target(other, f"{other}-on-{name}", **{"log.dirs": str(make_target(name, name).data)})
        again.start()
        assert consumed(again, "read_committed") == left[name][-2]
        assert again.stop() in {0, 143}
