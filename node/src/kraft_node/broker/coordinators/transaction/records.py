"""The stored form of transactional ids: records of `__transaction_state` as Apache Kafka 4.3.1 writes them.

The key is record type 0 with the transactional id. A value has version 0 in a cluster with transaction.version 0,
otherwise the flexible version 1. Its tags hold the previous and the next producer id and the client's
transaction.version. Every version is read. A record without a value removes the id.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from kraft_node.broker.coordinators.transaction.states import TransactionState, Values
from kraft_protocol.wire.coordinator import TRANSACTION, decode_key, decode_value, encode_key, encode_value
from kraft_protocol.wire.stored import TransactionLogKey, TransactionLogValue

if TYPE_CHECKING:
    from kraft_protocol.buffers import Buffer

PLAIN: Final = 0
FLEXIBLE: Final = 1
FIRST_TRANSACTION_VERSION_WITH_TAGS: Final = 1


def encode_name(name: str) -> bytes:
    """The key of a transactional id."""
    return encode_key(TransactionLogKey(name))


def encode_values(values: Values, version: int) -> bytes:
    """The value of a record in a cluster with that transaction.version."""
    partitions = None
    if values.state is not TransactionState.EMPTY:
        by_topic = defaultdict(list)
        for topic, partition in sorted(values.partitions):
            by_topic[topic].append(partition)
        partitions = [TransactionLogValue.PartitionsSchema(topic, numbers) for topic, numbers in by_topic.items()]
    message = TransactionLogValue(
        producer_id=values.producer_id,
        producer_epoch=values.epoch,
        transaction_timeout_ms=values.timeout_ms,
        transaction_status=values.state.value,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=values.update_ms,
        transaction_start_timestamp_ms=values.start_ms,
    )
    if version < FIRST_TRANSACTION_VERSION_WITH_TAGS:
        return encode_value(message, PLAIN)
    message.previous_producer_id = values.previous_producer_id
    message.next_producer_id = values.next_producer_id
    message.client_transaction_version = values.client_version
    return encode_value(message, FLEXIBLE)


def decode_record(key: Buffer, value: Buffer | None) -> tuple[str, Values | None]:
    """The transactional id and its values; None: the id is removed.

    Raises UnknownRecordTypeError for a record type of a newer release, and ValueError for damage.
    """
    decoded = decode_key(TRANSACTION, key)
    assert isinstance(decoded, TransactionLogKey), "law: this family has one record type"
    name = decoded.transactional_id
    if value is None:
        return name, None
    message = decode_value(decoded, value)
    assert isinstance(message, TransactionLogValue), "law: the key determines the value"
    state = TransactionState(message.transaction_status)
    partitions = frozenset(
        (topic.topic, number)
        for topic in (message.transaction_partitions or () if state is not TransactionState.EMPTY else ())
        for number in topic.partition_ids
    )
    return name, Values(
        message.producer_id,
        message.producer_epoch,
        message.transaction_timeout_ms,
        state,
        partitions,
        message.transaction_start_timestamp_ms,
        message.transaction_last_update_timestamp_ms,
        message.previous_producer_id,
        message.next_producer_id,
        message.client_transaction_version,
    )
