"""An idempotent producer with acks=all and a consumer, until the file `/tmp/stop` exists; then one line of JSON.

The line has the acknowledged, read and missing records, and the waiting times of the clients.

    workload.py BOOTSTRAP TOPIC PARTITIONS REPLICAS [RECORDS_PER_SECOND]

Every record is `number` in its partition; a partition's records have to be read without a gap, in order, once each.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
from collections import deque

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

STOP = "/tmp/stop"
OPTIONS = json.loads(os.environ.get("CLIENT_OPTIONS", "{}"))
"""Options of librdkafka for all clients, such as those of TLS."""
READ_MAX_S = 60.0
BEGUN = 100
"""Acknowledged records after which it says that it has begun."""
EPOCHS = re.compile(r"bumped epoch|skipped sequence numbers|encountered error")
"""librdkafka's lines that explain records in the log twice: it sends them again after it has bumped its epoch."""
EPOCH_LINES_MAX = 20_000


class Explanations(logging.Handler):
    """The lines that explain repeated records, at most `EPOCH_LINES_MAX`."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=EPOCH_LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if EPOCHS.search(text):
            self.lines.append(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}")


class Producing:
    """The sent and acknowledged records by partition."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: float) -> None:
        self.topic, self.partitions, self.rate = topic, partitions, rate
        self.sent = [0] * partitions
        self.acknowledged: list[set[int]] = [set() for _ in range(partitions)]
        self.failed: list[str] = []
        self.waits_ms: list[float] = []
        self.pause_ms = 0.0
        self._last = time.monotonic()
        self.explanations = Explanations()
        logger = logging.Logger("librdkafka", logging.DEBUG)
        logger.addHandler(self.explanations)
        self._producer = Producer(
            {
                **OPTIONS,
                "debug": "eos,msg",
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 120_000,
                "request.timeout.ms": 10_000,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "socket.connection.setup.timeout.ms": 3000,
                "topic.metadata.refresh.interval.ms": 10_000,
                "error_cb": self._note_fatal,
            },
            logger=logger,
        )

    def _note_fatal(self, error: KafkaError) -> None:
        """librdkafka gives up, for example if records time out that it cannot leave out of a batch to send again."""
        if error.fatal():
            self.failed.insert(0, f"the producer ends: {error.str()}")

    def run(self) -> None:
        """Send at the rate until the file exists; then wait until every record is acknowledged or has failed."""
        began, count = time.monotonic(), 0
        self._last = began
        while not os.path.exists(STOP):
            try:
                self._one(count % self.partitions)
                count += 1
                self._producer.poll(max(0.0, count / self.rate - (time.monotonic() - began)))
            except KafkaException as error:  # fatal: `_note_fatal` has the reason
                self.failed.insert(0, str(error))
                break
        self._producer.flush(120)

    def _one(self, partition: int) -> None:
        number, at = self.sent[partition], time.monotonic()
        self.sent[partition] += 1

        def delivered(error: KafkaError | None, _: object) -> None:
            now = time.monotonic()
            if error is not None:
                self.failed.append(f"{partition}/{number}: {error}")
                return
            self.acknowledged[partition].add(number)
            self.waits_ms.append((now - at) * 1000)
            if len(self.waits_ms) == BEGUN:
                print("began", flush=True)
            self.pause_ms = max(self.pause_ms, (now - self._last) * 1000)
            self._last = now

        while True:
            try:
                self._producer.produce(self.topic, str(number), partition=partition, on_delivery=delivered)
                return
            except BufferError:
                self._producer.poll(0.1)


class Consuming(threading.Thread):
    """The read records by partition."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.read: list[list[int]] = [[] for _ in range(partitions)]
        self.offsets: list[list[int]] = [[] for _ in range(partitions)]
        self.enough: list[int] | None = None
        self._consumer = Consumer(
            {
                **OPTIONS,
                "bootstrap.servers": bootstrap,
                "group.id": "workload",
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def run(self) -> None:
        until = float("inf")
        while time.monotonic() < until:
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.read[message.partition()].append(int(message.value()))
                self.offsets[message.partition()].append(message.offset())
            if self.enough is not None:
                until = min(until, time.monotonic() + READ_MAX_S)
                # Records that were read twice count once: the last record must not be left out.
                if all(len(set(got)) >= most for got, most in zip(self.read, self.enough, strict=True)):
                    break
        self._consumer.close()

    def repeats(self) -> dict[int, dict[int, list[int]]]:
        """By partition and number: the offsets of the records that are there more than once."""
        found: dict[int, dict[int, list[int]]] = {}
        for partition, (numbers, offsets) in enumerate(zip(self.read, self.offsets, strict=True)):
            places: dict[int, list[int]] = {}
            for number, offset in zip(numbers, offsets, strict=True):
                places.setdefault(number, []).append(offset)
            repeated = {number: at for number, at in places.items() if len(at) > 1}
            if repeated:
                found[partition] = repeated
        return found

    def displaced(self) -> list[int]:
        """The partitions in which a record's first copy is behind a later record,."""
        return [p for p, got in enumerate(self.read) if list(dict.fromkeys(got)) != sorted(set(got))]


def main() -> None:
    bootstrap, topic, partitions, replicas = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    rate = float(sys.argv[5]) if len(sys.argv) > 5 else 200.0
    admin = AdminClient({**OPTIONS, "bootstrap.servers": bootstrap})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas)
    for future in admin.create_topics([new], operation_timeout=30).values():
        try:
            future.result(60)
        except Exception as error:
            if "TOPIC_ALREADY_EXISTS" not in str(error):
                raise
    producing, consuming = Producing(bootstrap, topic, partitions, rate), Consuming(bootstrap, topic, partitions)
    consuming.start()
    producing.run()
    consuming.enough = [len(acknowledged) for acknowledged in producing.acknowledged]
    consuming.join()
    lost = {
        p: sorted(acknowledged - set(consuming.read[p]))[:5] for p, acknowledged in enumerate(producing.acknowledged)
    }
    waits = sorted(producing.waits_ms)
    disordered = [p for p, got in enumerate(consuming.read) if got != sorted(set(got))]
    report = {
        "acknowledged": len(waits),
        "failed": len(producing.failed),
        "failures": producing.failed[:5],
        "read": sum(map(len, consuming.read)),
        "lost": {p: numbers for p, numbers in lost.items() if numbers},
        "disordered": disordered,
        "pause_ms_max": round(producing.pause_ms),
        "wait_ms_p50": round(waits[len(waits) // 2], 1) if waits else None,
        "wait_ms_p99": round(waits[int(len(waits) * 0.99)], 1) if waits else None,
        "wait_ms_max": round(waits[-1]) if waits else None,
    }
    if disordered:
        report["explanations"] = list(producing.explanations.lines)
        report["repeats"], report["displaced"] = consuming.repeats(), consuming.displaced()
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
