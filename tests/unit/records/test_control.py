"""Control batches: keys, markers, unknown future types."""

from __future__ import annotations

import pytest

from kraft_protocol.records.batch import check_batch, iter_records
from kraft_protocol.records.control import (
    ControlType,
    build_control_batch,
    build_marker,
    built_marker,
    control_key,
    iter_control_records,
    parse_control_key,
    parse_marker,
)
from kraft_protocol.records.errors import CorruptBatch


def test_marker_bytes_equal_kafkas() -> None:
    data = build_marker(commit=True, producer_id=5, producer_epoch=2, coordinator_epoch=9, timestamp=77)
    header = check_batch(data)
    assert header.is_control
    assert header.is_transactional
    assert header.base_sequence == -1
    (record,) = iter_records(data)
    assert record.key == b"\0\0\0\1"
    assert record.value == b"\0\0\0\0\0\x09"
    assert parse_marker(record.value) == 9


def test_a_built_marker_is_read_without_decoding_its_batch() -> None:
    for commit, kind in ((True, ControlType.COMMIT), (False, ControlType.ABORT)):
        data = build_marker(commit=commit, producer_id=5, producer_epoch=2, coordinator_epoch=70_000, timestamp=77)
        header = check_batch(data)
        (record,) = iter_records(data)
        assert (header.max_timestamp, record.timestamp, record.headers) == (77, 77, ())
        assert built_marker(data) == (kind, 70_000) == (parse_control_key(record.key), parse_marker(record.value))


def test_future_types_are_unknown_and_bad_keys_are_refused() -> None:
    assert parse_control_key(control_key(99)) is ControlType.UNKNOWN
    for key in (None, b"", b"\0\0\0", b"\xff\xff\0\0"):
        with pytest.raises(CorruptBatch):
            parse_control_key(key)
    with pytest.raises(CorruptBatch):
        parse_marker(b"\0")


def test_metadata_control_batches_are_decoded() -> None:
    data = build_control_batch([(ControlType.LEADER_CHANGE, b"abc")], base_offset=10, leader_epoch=4, timestamp=5)
    header = check_batch(data)
    assert (header.base_offset, header.partition_leader_epoch, header.is_transactional) == (10, 4, False)
    assert list(iter_control_records(data)) == [(10, 5, ControlType.LEADER_CHANGE, b"abc")]
