"""Compaction's result beside that of Apache Kafka's cleaner; and Apache Kafka on a directory that ours compacted."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.storage.reading import Consumed, consumed
from tests.compat.targets import Target

CLIENT = "Compaction"
pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("compaction")]

MakeTarget = Callable[..., Target]
EAGER = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "0"}
CONFIG = {"cleanup.policy": "compact", "internal.segment.bytes": "10000", "min.cleanable.dirty.ratio": "0.01"}
COMPACTS_S = 60


def write(target: Target) -> None:
    """Write the same batches to every server: repeated keys, tombstones, long keys."""
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1, config=CONFIG)])["t"].result(30)
    rng = random.Random(7)
    producer = Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 1000, "batch.num.messages": 7})
    for number in range(60):
        for _ in range(7):
            key = b"key-%d" % rng.randrange(40) * rng.choice((1, 1, 9))
            value = None if rng.random() < 0.1 else rng.randbytes(rng.randrange(300))
            producer.produce("t", value, key, partition=0, timestamp=1_700_000_000_000 + number)
        assert producer.flush(30) == 0


def settled(target: Target) -> list[Consumed]:
    """Wait until compaction has not changed the log for three seconds."""
    deadline = time.monotonic() + COMPACTS_S
    before: list[Consumed] = []
    while time.monotonic() < deadline:
        found = consumed(target)
        if len(found) < 200 and found == before:
            return found
        before = found
        time.sleep(3)
    raise AssertionError(f"{len(before)} records are left after {COMPACTS_S} s")


def test_the_same_records_survive_apache_kafkas_cleaner(make_target: MakeTarget) -> None:
    left = []
    for name in ("kraftcluster", "apache"):
        target = make_target(name, name, **EAGER)
        target.start()
        write(target)
        left.append(settled(target))
        assert target.stop() in {0, 143}
    assert left[0] == left[1]
    ours = make_target("apache", "again", **{"log.dirs": str(target.folder.parent / "kraftcluster" / "data")})
    ours.start()
    assert consumed(ours) == left[0]
