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
_VERSIONS: Final = (PLAIN, FLEXIBLE)
_ANY: Final = TransactionLogKey("")
TYPE_SIZE: Final = 2
_TYPE: Final = encode_key(_ANY)[:TYPE_SIZE]
_STATE_AT: Final = 16
"""Before it stand the version, the producer id, its epoch and the time-out."""
_STATES: Final = frozenset(state.value for state in TransactionState)


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


def name_in(key: Buffer) -> str:
    """The transactional id of a key. Raises UnknownRecordTypeError for a record type of a newer release, and
    ValueError for damage."""
    decoded = decode_key(TRANSACTION, key)
    assert isinstance(decoded, TransactionLogKey), "law: this family has one record type"
    return decoded.transactional_id


def check_type(key: Buffer) -> None:
    """Raise like `name_in` for a key of another record type."""
    if key[:TYPE_SIZE] != _TYPE:
        name_in(key)


def state_in(value: Buffer) -> int:
    """The number of the state in a value, which stands at the same place in all versions.

    Raises ValueError for a version or a state that is not known.
    """
    if len(value) <= _STATE_AT or value[0] or value[1] not in _VERSIONS or value[_STATE_AT] not in _STATES:
        decode_values(value)
        raise ValueError(f"a value of {len(value)} bytes without a known state")
    return value[_STATE_AT]


def decode_values(value: Buffer) -> Values:
    """Inverse of `encode_values`. Raises ValueError for damage."""
    message = decode_value(_ANY, value)
    assert isinstance(message, TransactionLogValue), "law: the key determines the value"
    state = TransactionState(message.transaction_status)
    partitions = frozenset(
        (topic.topic, number)
        for topic in (message.transaction_partitions or () if state is not TransactionState.EMPTY else ())
        for number in topic.partition_ids
    )
    return Values(
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
