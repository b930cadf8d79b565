"""Reading a partition with a consumer."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from tests.compat.targets import Target

Consumed = tuple[int, bytes | None, bytes | None]
"""Offset, key and value."""


def consumed(target: Target, isolation: str = "read_committed") -> list[Consumed]:
    """The records of partition 0 of the topic `t`, from its start to its end, with their checksums verified."""
    settings = {"bootstrap.servers": target.bootstrap, "group.id": "r", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": isolation, "check.crcs": True})
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[Consumed] = []
    while True:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is not None:  # the end
            break
        found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found
