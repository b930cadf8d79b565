"""Kafka Streams with exactly-once processing on a cluster whose brokers are killed: every word is counted once."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.compat.members import Members, wait_for
from tests.peer import PROGRAMS, QUICK_JVM, java_program, require_peer

CLIENT = "Kafka Streams"
pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("streams")]

WORDS = [f"w{i}" for i in range(40)]
LINES = 3000
COORDINATED = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
}


@contextmanager
def _application(members: Members, folder: Path, protocol: str) -> Iterator[subprocess.Popen[bytes]]:
    """The word count in a process of its own; killed at the end, if it still runs."""
    log = folder / "streams.log"
    classes, main_class = java_program(PROGRAMS / "WordCount.java")
    command = ["java", *QUICK_JVM, "-cp", f"{require_peer()}/*:{classes}", main_class]
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*command, members.bootstrap, str(folder / "state"), protocol], stdout=out, stderr=out
        )
    try:
        wait_for("the application runs", lambda: b"STATE RUNNING" in log.read_bytes() or process.poll() is not None)
        assert process.poll() is None, log.read_text()[-3000:]
        yield process
    finally:
        process.kill()
        process.wait()
        log.write_bytes(b"")


def _feed(members: Members, sent: Counter[str]) -> None:
    """Produce lines for some 25 seconds; each must be acknowledged."""
    producer = Producer({"bootstrap.servers": members.bootstrap, "acks": "all", "enable.idempotence": True})
    failed: list[object] = []

    def done(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    for number in range(LINES):
        words = [WORDS[(number * k) % len(WORDS)] for k in (1, 3, 7)]
        producer.produce("lines", " ".join(words).encode(), key=str(number), on_delivery=done)
        sent.update(words)
        producer.poll(0.008)
    assert producer.flush(120) == 0
    assert failed == []


def _committed_counts(members: Members, total: int) -> dict[str, list[int]]:
    """The counts of each word as a reader of committed records gets them, once there are `total`."""
    consumer = Consumer(
        {
            "bootstrap.servers": members.bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["counts"])
    counts: dict[str, list[int]] = defaultdict(list)
    seen = 0
    last = time.monotonic()
    # Two quiet seconds at the end would show counts that are too many.
    while time.monotonic() - last < (2 if seen >= total else 120):
        message = consumer.poll(0.2)
        if message is None:
            continue
        assert message.error() is None, message.error()
        word, count = message.key(), message.value()
        assert word is not None
        assert count is not None
        counts[word.decode()].append(int(count))
        seen += 1
        last = time.monotonic()
    consumer.close()
    return counts


@pytest.mark.timeout(420)
def test_words_are_counted_exactly_once_while_brokers_and_the_application_are_killed(tmp_path: Path) -> None:
    require_peer()
    members = Members(tmp_path, overrides=COORDINATED)
    sent: Counter[str] = Counter()
    try:
        members.start()
        for topic in ("lines", "counts"):
            members.create(topic, 3, 3)
        feeder = threading.Thread(target=_feed, args=(members, sent))
        with _application(members, tmp_path, "classic"):
            feeder.start()
            for broker in members.broker_ids:
                time.sleep(3)
                members.nodes[broker].stop(signal.SIGKILL)
                time.sleep(1)
                members.start(broker)
                wait_for(
                    "the broker is back", lambda: members.unfenced(members.broker_ids[0]) == set(members.broker_ids)
                )
        with _application(members, tmp_path, "classic") as process:
            feeder.join()
            os.kill(process.pid, 0)
            counts = _committed_counts(members, 3 * LINES)
        assert {word: len(found) for word, found in counts.items()} == dict(sent)
        assert {word: found for word, found in counts.items() if found != list(range(1, len(found) + 1))} == {}
    except AssertionError as error:
        raise AssertionError(f"{error}\n{members.tails()[-6000:]}") from error
    finally:
        members.stop()
