"""A node that must scan a long log after an unclean stop keeps serving: probes, other partitions, its session."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kraft_node.log import names
from kraft_node.log.config import make_config
from kraft_node.log.log_dir import LogDir
from kraft_node.log.recovery.opening import open_log
from kraft_node.log.segments.files import FileCache
from kraft_node.runtime.env import RealEnv
from kraft_protocol.records.batch import build_batch
from tests.compat.members import wait_for
from tests.compat.targets import Ours, free_ports

CLIENT = "Long recoveries"
pytestmark = pytest.mark.xdist_group("long-recovery")

BATCHES = 300_000
"""Seconds of walking, with batches of 100 bytes."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Ours]:
    (port,) = free_ports(1)
    made = Ours("node", tmp_path / "node", {"http.listener": f"127.0.0.1:{port}"})
    yield made
    made.kill()


def livez(node: Ours) -> int:
    with urllib.request.urlopen(f"http://{node.overrides['http.listener']}/livez", timeout=10) as answer:
        return int(answer.status)


def lengthen(node: Ours, topic: str) -> None:
    """Append many small batches to a log as the node would have done, and leave it as after a power loss."""
    env = RealEnv()
    try:
        directory = LogDir(env.env, str(node.data), FileCache(env.env.disk))
        log = open_log(directory, str(node.data / f"{topic}-0"), topic, 0, make_config())
        small = build_batch([(None, b"x" * 20)], timestamp=env.env.clock.wall_ms())
        for _ in range(BATCHES):
            log.append_as_leader(small, 0, env.env.clock.wall_ms())
        log.close()
    finally:
        env.close()
    for mark in (names.BOOT, names.CLEAN_SHUTDOWN):
        (node.data / mark).unlink(missing_ok=True)


def send(node: Ours, topic: str) -> list[object]:
    """Produce one record with retries; returns the errors."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": node.bootstrap, "message.timeout.ms": 60_000})
    producer.produce(topic, b"late", on_delivery=lambda error, _message: failed.append(error) if error else None)
    assert producer.flush(70) == 0
    return failed


def test_probes_and_other_partitions_are_served_during_a_long_recovery(node: Ours) -> None:
    node.start()
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in admin.create_topics([NewTopic("long", 1, 1), NewTopic("short", 1, 1)]).values():
        future.result(30)
    assert send(node, "long") == send(node, "short") == []
    node.stop()
    lengthen(node, "long")
    node.start()
    wait_for("the walk has begun", lambda: "recovering log partition=long-0" in node.log.read_text())
    probed = 0
    while "recovered log partition=long-0" not in node.log.read_text():
        assert livez(node) == 200
        assert send(node, "short") == []
        probed += 1
    assert probed >= 3, "the walk was over at once: make the log longer"
    assert send(node, "long") == []
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition("long", 0), 30)
    finally:
        consumer.close()
    assert (low, high) == (0, BATCHES + 2)
    assert "controller has fenced this broker" not in node.log.read_text()
