"""One node through many losses of power, and what must be true after each.

A life: the node starts, clients write, and after a drawn number of changes of its disk the power goes, perhaps in the
midst of the start. Then the node starts once more, and everything that was promised is read.

Promised are: records of the topic with `flush.messages=1` that were acknowledged; topics that were created; the epoch
of the quorum never goes back. Of other topics, whatever is left is a prefix of what was sent, byte for byte.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.targets import Ours, Target
from tests.crash.lossy import Lossy, node_command

FLUSHED, PLAIN = "flushed", "plain"
PARTITIONS = 2
BOOT_ID = "boot_id"
CHANGES_MAX = 600
"""A start is some 100 changes, a second of clients some 1,000."""
LIFE_S = 20.0
START_S = 60.0
VALUE_BYTES = (10, 30_000)
SETTINGS = {
    "log.segment.bytes": str(1 << 20),
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "100",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "offsets.topic.num.partitions": "2",
}
CONFIGS = {FLUSHED: {"flush.messages": "1"}, PLAIN: {"retention.bytes": str(3 << 20)}}

Say = Callable[[str], None]


class Broken(AssertionError):  # noqa: N818 - what it is
    """A promise was broken."""


class Node(Ours):
    """The node on the lossy disk."""

    def _command(self, program: str, *args: str) -> list[str]:
        if program == "server":
            return node_command(self.folder / BOOT_ID, Path(args[0]))
        return super()._command(program, *args)

    def _storage(self, *args: str) -> None:
        Target._storage(self, *args)  # a process of its own: this one must not wait for the disk that it serves

    def boot(self) -> None:
        """The machine boots: its page cache is empty."""
        (self.folder / BOOT_ID).write_text(str(uuid.uuid4()))


@dataclass
class Sent:
    """What clients know of one topic in one cluster."""

    values: set[bytes] = field(default_factory=set)
    """All that was sent, acknowledged or not."""
    acknowledged: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """By partition and offset."""


class Rig:
    """A node, its disk, and what was promised."""

    def __init__(self, folder: Path, seed: int, say: Say = lambda _: None) -> None:
        self._rng = random.Random(seed)
        self._disk = Lossy(folder / "disk", seed)
        self._folder = folder
        self._say = say
        self._count = 0
        self._sent = {FLUSHED: Sent(), PLAIN: Sent()}
        self._topics: set[str] = set()
        self._starts: dict[int, int] = {}
        """The first offset of each partition that was read last."""
        self._epoch = 0
        self.crashes_in_start = 0
        self.acknowledged = 0

    def __enter__(self) -> Rig:
        self._disk.__enter__()
        data = self._disk.folder / "data"
        self._node = Node("kraftcluster", self._folder / "node", {"log.dirs": str(data), **SETTINGS})
        try:
            self._node.boot()
            self._node.format()
            self._start()
            for topic, config in CONFIGS.items():
                self._create(topic, config)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        self._node.kill()
        self._disk.__exit__(*error)

    def lose_power_once(self) -> None:
        """One life, a loss of power, and the check. Raises Broken."""
        self._count += 1
        changes = self._rng.randrange(CHANGES_MAX)
        in_start = self._rng.random() < 0.3
        if in_start:
            self._node.kill()
            self._disk.cut_power_after(self._rng.randrange(150))
            try:
                self._node.launch()
                self._node.wait_ready()
            except AssertionError:
                if not self._disk.is_off:
                    raise
                self.crashes_in_start += 1
        else:
            self._disk.cut_power_after(changes)
        if not self._disk.is_off:
            self._work()
        self._node.kill()
        self._disk.restore_power()
        self._node.boot()
        self._start()
        self._check()
        self._say(f"{self._count}: power lost after {self._disk.changes} changes{' in a start' if in_start else ''}")

    # Clients.

    def _start(self) -> None:
        try:
            self._node.launch()
            self._node.wait_ready()
        except AssertionError as error:
            raise Broken(f"the node does not start after power loss {self._count}: {error}") from None

    def _create(self, topic: str, config: dict[str, str]) -> None:
        admin = AdminClient({"bootstrap.servers": self._node.bootstrap, "socket.timeout.ms": 5_000})
        future = admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)], request_timeout=5)[topic]
        try:
            future.result(10)
        except KafkaException:
            return
        self._topics.add(topic)

    def _work(self) -> None:
        """Write until the power is off, or nothing more changes the disk."""
        producer = Producer(
            {
                "bootstrap.servers": self._node.bootstrap,
                "acks": "all",
                "retries": 0,
                "linger.ms": 1,
                "message.timeout.ms": 3_000,
                "reconnect.backoff.max.ms": 100,
            }
        )
        end = time.monotonic() + LIFE_S
        made = 0
        while not self._disk.is_off and time.monotonic() < end:
            topic = self._rng.choice((FLUSHED, PLAIN, PLAIN))
            value = self._rng.randbytes(self._rng.choice(VALUE_BYTES)) + str(self._rng.random()).encode()
            self._sent[topic].values.add(value)
            producer.produce(topic, value, partition=self._rng.randrange(PARTITIONS), callback=self._reported)
            producer.poll(0.001)
            if self._rng.random() < 0.02 and made < 3:
                made += 1
                self._create(f"t{self._count}-{made}", {})
        producer.flush(4)

    def _reported(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged += 1
            self._sent[message.topic()].acknowledged[message.partition(), message.offset()] = message.value()

    # Promises.

    def _quorum_epoch(self) -> int:
        """The epoch in which the running node leads: it has voted in it, and votes are durable before they count."""
        path = self._disk.folder / "data" / "__cluster_metadata-0" / "quorum-state"
        return int(json.loads(path.read_text())["leaderEpoch"])

    def _check(self) -> None:
        epoch = self._quorum_epoch()
        if epoch < self._epoch:
            raise Broken(f"the epoch of the quorum went back from {self._epoch} to {epoch}")
        self._epoch = epoch
        admin = AdminClient({"bootstrap.servers": self._node.bootstrap})
        known = set(admin.list_topics(timeout=20).topics)
        if lost := self._topics - known:
            raise Broken(f"topics that were created are lost: {sorted(lost)}")
        for topic, sent in self._sent.items():
            found = self._read(topic)
            for place, value in found.items():
                expected = sent.acknowledged.get(place)
                if value not in sent.values or (expected is not None and expected != value):
                    raise Broken(f"{topic} {place}: {len(value)} bytes that were not sent there")
            left = {place for place in sent.acknowledged if place not in found and place[1] >= self._starts[place[0]]}
            if topic == FLUSHED and left:
                raise Broken(f"{topic}: {len(left)} acknowledged records are lost, such as {min(left)}")
            for place in left:
                del sent.acknowledged[place]  # never promised; another record may get the offset

    def _bounds(self, consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
        """The first offset and the end, once the partition has a leader. Raises Broken if it gets none."""
        end = time.monotonic() + START_S
        while True:
            try:
                low, high = consumer.get_watermark_offsets(partition, timeout=20)
                return low, high
            except KafkaException as error:
                if time.monotonic() > end:
                    raise Broken(f"{partition.topic}-{partition.partition} has no leader: {error}") from None
            time.sleep(0.1)

    def _read(self, topic: str) -> dict[tuple[int, int], bytes]:
        """All records of a topic, by partition and offset. Raises Broken if there are gaps."""
        server = self._node.bootstrap
        consumer = Consumer({"bootstrap.servers": server, "group.id": "check", "enable.auto.commit": False})
        found: dict[tuple[int, int], bytes] = {}
        self._starts = {}
        try:
            for partition in range(PARTITIONS):
                low, high = self._bounds(consumer, TopicPartition(topic, partition))
                self._starts[partition] = low
                consumer.assign([TopicPartition(topic, partition, low)])
                next_offset, end = low, time.monotonic() + START_S
                while next_offset < high:
                    message = consumer.poll(1)
                    if time.monotonic() > end:
                        raise Broken(f"{topic}-{partition}: nothing at {next_offset}, which is below the end {high}")
                    if message is None:
                        continue
                    if message.error() is not None or message.offset() != next_offset:
                        raise Broken(f"{topic}-{partition}: {message.error() or message.offset()} at {next_offset}")
                    found[partition, next_offset] = message.value()
                    next_offset += 1
        finally:
            consumer.close()
        return found
