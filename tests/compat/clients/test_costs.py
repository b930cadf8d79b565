"""Expensive requests run in turns of the event loop; foreign clients notice nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.compat.targets import Target

pytestmark = pytest.mark.xdist_group("exchange")

COUNT = 60_000


@pytest.mark.parametrize("codec", ["none", "zstd", "gzip"])
def test_batches_of_very_many_records_keep_their_order_on_a_compacted_topic(
    make_target: Callable[..., Target], codec: str
) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    target = make_target("kraftcluster").start()
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    topic = NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([topic])["compacted"].result(30)
    failed: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": target.bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 500,
            "batch.num.messages": 20_000,
            "batch.size": 900_000,
        }
    )
    for number in range(COUNT):
        producer.produce(
            "compacted", b"", str(number).encode(), callback=lambda e, m: failed.append(e) if e is not None else None
        )
    producer.produce("compacted", b"v", None, callback=lambda e, m: failed.append(e) if e is not None else None)
    assert producer.flush(60) == 0
    assert [error.name() for error in failed] == ["INVALID_RECORD"] * len(failed)
    kept = COUNT - (len(failed) - 1)
    assert len(failed) >= 1, "a record without a key spoils its batch"
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "check", "enable.auto.commit": False})
    consumer.assign([TopicPartition("compacted", 0, 0)])
    found: list[bytes] = []
    while len(found) < kept:
        messages = consumer.consume(5000, 10)
        assert messages, f"{len(found)} of {kept}"
        found += [message.key() for message in messages]
    consumer.close()
    assert found == [str(i).encode() for i in range(kept)]
    assert target.stop() == 0
