"""Batches, records and index entries in the format of kafka-dump-log."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from kraft_node.cli import record_text
from kraft_node.cli.common import ToolError
from kraft_protocol.records.batch import BatchHeader, Record
from kraft_protocol.records.control import ControlType, parse_control_key, parse_marker
from kraft_protocol.records.varint import read_uvarint
from kraft_protocol.wire import stored
from kraft_protocol.wire.codec import decode
from kraft_protocol.wire.errors import DecodeError

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

Contents: TypeAlias = Callable[[Record], tuple[str | None, str | None]]
"""Key and payload of a record as text; None if it is not printed."""


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _codec(batch: BatchHeader) -> str:
    return CODECS[batch.compression] if batch.compression < len(CODECS) else str(batch.compression)


def sequence_after(base: int, delta: int) -> int:
    """A producer's sequence number `delta` records after `base`; it wraps to 0 after the largest int32."""
    if base < 0:
        return base
    return (base + delta) % (1 << 31)


def batch_line(batch: BatchHeader, position: int, *, valid: bool) -> str:
    """A batch's header."""
    kind = "LogAppendTime" if batch.timestamp_type else "CreateTime"
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.count} "
        f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} producerId: {batch.producer_id} "
        f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.partition_leader_epoch} "
        f"isTransactional: {_flag(batch.is_transactional)} isControl: {_flag(batch.is_control)} "
        f"deleteHorizonMs: {_optional(batch.delete_horizon_ms)} position: {position} {kind}: {batch.max_timestamp} "
        f"size: {batch.length} magic: {batch.magic} compresscodec: {_codec(batch)} crc: {batch.crc} "
        f"isvalid: {_flag(valid)}"
    )


def record_line(batch: BatchHeader, record: Record, contents: Contents | None, *, metadata: bool) -> str:
    """A record's line; empty without printed parts, for example for a control record without metadata."""
    if batch.is_control and not metadata:
        return ""
    line = ""
    if metadata:
        kind = "LogAppendTime" if batch.timestamp_type else "CreateTime"
        sequence = sequence_after(batch.base_sequence, record.offset - batch.base_offset)
        line += (
            f" offset: {record.offset} {kind}: {record.timestamp} keySize: {_size(record.key)} "
            f"valueSize: {_size(record.value)} sequence: {sequence} "
            f"headerKeys: [{','.join(key for key, _ in record.headers)}]"
        )
    if batch.is_control:
        line += control_text(record)
    elif contents is not None:
        key, payload = contents(record)
        line += "" if key is None else f" key: {key}"
        line += "" if payload is None else f" payload: {payload}"
    return line and "|" + line


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


_CONTROL_MESSAGES: Final = {
    ControlType.LEADER_CHANGE: ("LeaderChange:", "LeaderChangeMessage"),
    ControlType.SNAPSHOT_HEADER: ("SnapshotHeader", "SnapshotHeaderRecord"),
    ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter", "SnapshotFooterRecord"),
    ControlType.KRAFT_VERSION: ("KRaftVersion", "KRaftVersionRecord"),
    ControlType.KRAFT_VOTERS: ("KRaftVoters", "VotersRecord"),
}


def control_text(record: Record) -> str:
    """The text after the metadata of a control record."""
    kind = parse_control_key(record.key)
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        return f" endTxnMarker: {kind.name} coordinatorEpoch: {parse_marker(record.value)}"
    if kind not in _CONTROL_MESSAGES:
        return f" controlType: UNKNOWN({record.key.hex() if record.key else ''})"
    label, name = _CONTROL_MESSAGES[kind]
    data = record.value or b""
    # The first field is the version of the rest.
    version = struct.unpack_from(">h", data)[0] if len(data) >= 2 else 0
    return f" {label} {_json(record_text.to_json(decode(getattr(stored, name), data, version), version))}"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


# Contents


def cluster_metadata(record: Record) -> tuple[str | None, str | None]:
    """The records of the metadata log."""
    from kraft_node.metadata.records import decode_record
    from kraft_protocol.wire.schema import snake_case

    try:
        message = decode_record(record.value or b"")
        version = _record_version(record.value or b"")
        data = record_text.to_json(message, version)
    except ValueError as e:
        return None, f"Error at {record.offset}, skipping. {e}"
    if isinstance(message, stored.ConfigRecord):
        from kraft_node.base.config.describe import redacted

        data["value"] = redacted(message.resource_type, message.name, message.value)
    name = snake_case(type(message).__name__).upper()
    return None, _json({"type": name, "version": version, "data": data})


def _record_version(value: bytes) -> int:
    """The version in a metadata record's frame; it follows the frame's version and the type."""
    position = 0
    number = 0
    for _ in range(3):
        number, position = read_uvarint(value, position)
    return number


def coordinator(log: str) -> Contents:
    """The records of a coordinator's log: `offsets`, `transactions` or `shares`."""

    def contents(record: Record) -> tuple[str | None, str | None]:
        try:
            name, number, key = record_text.coordinator_key(log, record.key or b"")
            shown = _json({"type": str(number), "data": record_text.to_json(key, 0)})
            if record.value is None:
                return shown, "<DELETE>"
            version, value = record_text.coordinator_value(name, record.value)
            convert = record_text.group_metadata_json if name == "GroupMetadata" else record_text.to_json
            return shown, _json({"version": str(version), "data": convert(value, version)})
        except record_text.UnknownTypeError as e:
            return f"Unknown record type {e.number} at offset {record.offset}, skipping.", None
        except DecodeError as e:
            return f"Error at offset {record.offset}, skipping. {e}", None

    return contents


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _number(layout: str) -> Callable[[bytes], str]:
    """Decode the first bytes, as Kafka does. Raises ToolError if there are too few."""

    def decode_number(data: bytes) -> str:
        try:
            return str(struct.unpack_from(layout, data)[0])
        except struct.error:
            raise ToolError(f"a value of {len(data)} bytes is shorter than the decoder's number") from None

    return decode_number


DECODERS: Final[dict[str, Callable[[bytes], str]]] = {
    "StringDecoder": _text,
    "DefaultDecoder": bytes.hex,
    "IntegerDecoder": _number(">i"),
    "LongDecoder": _number(">q"),
}
"""Kafka's own decoders by class name; other classes cannot be loaded."""


def decoder(name: str) -> Callable[[bytes], str]:
    """The decoder with that class name, with or without its package. Raises ToolError."""
    found = DECODERS.get(name.rpartition(".")[2])
    if found is None:
        raise ToolError(f"unknown decoder {name}; use one of {', '.join(DECODERS)}")
    return found


def plain(key_decoder: Callable[[bytes], str], value_decoder: Callable[[bytes], str]) -> Contents:
    """Keys and values, each by its decoder."""

    def contents(record: Record) -> tuple[str | None, str | None]:
        key = None if record.key is None else key_decoder(record.key)
        return key, None if record.value is None else value_decoder(record.value)

    return contents
