"""The stored form of transactional ids: records of `__transaction_state` as Apache Kafka 4.3.1 writes them.

The key is record type 0 with the transactional id. A value has version 0 in a cluster with transaction.version 0,
otherwise the flexible version 1. Its tags hold the previous and the next producer id and the client's
transaction.version. Every version is read. A record without a value removes the id.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from kraft_node.broker.coordinators.transaction.states import NO_PRODUCER_ID, TransactionState, Values
from kraft_protocol.wire.coordinator import TRANSACTION, decode_key, decode_value, encode_key
from kraft_protocol.wire.runtime import put_uvarint
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
_TYPE_NUMBER: Final = int.from_bytes(_TYPE, "big")
_INT16_MAX: Final = 2**15 - 1
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_INT64_SIZE: Final = 8
_KEY: Final = struct.Struct(">hh")
_HEAD: Final = struct.Struct(">hqhib")
_TAIL: Final = struct.Struct(">qq")
_ID_TAG: Final = struct.Struct(">bbq")
_VERSION_TAG: Final = struct.Struct(">bbh")
_STATE_AT: Final = 16
"""Before it stand the version, the producer id, its epoch and the time-out."""
_STATES: Final = frozenset(state.value for state in TransactionState)


def encode_name(name: str) -> bytes:
    """The key of a transactional id."""
    text = name.encode()
    return _KEY.pack(_TYPE_NUMBER, len(text)) + text if len(text) <= _INT16_MAX else encode_key(TransactionLogKey(name))


def encode_values(values: Values, version: int) -> bytes:
    """The value of a record in a cluster with that transaction.version.

    Packed by hand: a transaction writes three of them, and the general encoder would take a tenth of its time.
    """
    by_topic: dict[str, list[int]] | None = None
    if values.state is not TransactionState.EMPTY:
        by_topic = {}
        for topic, partition in sorted(values.partitions) if len(values.partitions) > 1 else values.partitions:
            by_topic.setdefault(topic, []).append(partition)
    is_flexible = version >= FIRST_TRANSACTION_VERSION_WITH_TAGS
    written = FLEXIBLE if is_flexible else PLAIN
    out = bytearray(_HEAD.pack(written, values.producer_id, values.epoch, values.timeout_ms, values.state))
    (_put_compact if is_flexible else _put_plain)(out, by_topic)
    out += _TAIL.pack(values.update_ms, values.start_ms)
    if is_flexible:
        _put_tags(out, values)
    return bytes(out)


def _put_plain(out: bytearray, by_topic: dict[str, list[int]] | None) -> None:
    if by_topic is None:
        out += _INT32.pack(-1)
        return
    out += _INT32.pack(len(by_topic))
    for topic, numbers in by_topic.items():
        name = topic.encode()
        out += _INT16.pack(len(name)) + name + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)


def _put_compact(out: bytearray, by_topic: dict[str, list[int]] | None) -> None:
    """Compact arrays: their length plus one, 0 for null (KIP-482)."""
    if by_topic is None:
        out.append(0)
        return
    put_uvarint(out, len(by_topic) + 1)
    for topic, numbers in by_topic.items():
        name = topic.encode()
        put_uvarint(out, len(name) + 1)
        out += name
        put_uvarint(out, len(numbers) + 1)
        out += struct.pack(f">{len(numbers)}ix", *numbers)  # the byte: no tags


def _put_tags(out: bytearray, values: Values) -> None:
    """The tagged fields that differ from their defaults: number of the tag, size, value."""
    tags = []
    if values.previous_producer_id != NO_PRODUCER_ID:
        tags.append(_ID_TAG.pack(0, _INT64_SIZE, values.previous_producer_id))
    if values.next_producer_id != NO_PRODUCER_ID:
        tags.append(_ID_TAG.pack(1, _INT64_SIZE, values.next_producer_id))
    if values.client_version:
        tags.append(_VERSION_TAG.pack(2, _INT16.size, values.client_version))
    out.append(len(tags))
    for tag in tags:
        out += tag


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
