"""librdkafka ends with a fatal error if it aborts a transaction that the coordinator has never heard of.

If its AddPartitionsToTxn is not answered, librdkafka cannot know whether the coordinator has it. So it sends EndTxn. If
the coordinator does not have it, no transaction is open, and both servers answer INVALID_TXN_STATE. librdkafka takes
that answer as fatal. Applications of the rounds then begin a new producer.
"""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kraft_protocol.wire.api import ApiKey
from tests.compat.targets import Target
from tests.faults.wire import Wire

TIMEOUT_S = 30.0


def test_abort_without_a_known_transaction_is_fatal_to_librdkafka(target: Target, wire: Wire) -> None:
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.create_topics([NewTopic("a", 1, 1)])["a"].result(TIMEOUT_S)
    producer = Producer(
        {"bootstrap.servers": f"127.0.0.1:{wire.port}", "transactional.id": "t", "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    wire.lose(ApiKey.ADD_PARTITIONS_TO_TXN)
    producer.produce("a", b"1", partition=0)
    deadline = time.monotonic() + TIMEOUT_S
    while not wire.losses:
        assert time.monotonic() < deadline, "no partition was added"
        producer.poll(0.1)
    with pytest.raises(KafkaException) as caught:
        producer.abort_transaction(TIMEOUT_S)
    error = caught.value.args[0]
    assert error.code() == KafkaError.INVALID_TXN_STATE
    assert error.fatal()
