"""Keys and values of the coordinators' topics."""

from __future__ import annotations

import pytest

from kraft_protocol.wire import codec, coordinator, stored
from kraft_protocol.wire.errors import DecodeError


def test_a_key_has_its_type_in_front_and_a_value_its_version() -> None:
    key = stored.OffsetCommitKey("g", "t", 3)
    raw = coordinator.encode_key(key)
    assert raw == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03"
    assert coordinator.decode_key(coordinator.GROUP, raw) == key
    value = stored.OffsetCommitValue(offset=5, metadata="m", commit_timestamp=7)
    raw = b"\0\3" + codec.encode(value, 3)
    assert coordinator.decode_value(key, memoryview(raw)) == value
    assert coordinator.decode_value_versioned(key, raw)[1] == 3


def test_families_number_their_types_apart() -> None:
    transaction = coordinator.encode_key(stored.TransactionLogKey("id"))
    share = coordinator.encode_key(stored.ShareSnapshotKey("g"))
    assert transaction[:2] == share[:2] == b"\x00\x00"
    assert coordinator.decode_key(coordinator.TRANSACTION, transaction) == stored.TransactionLogKey("id")
    assert coordinator.decode_key(coordinator.SHARE, share) == stored.ShareSnapshotKey("g")


def test_records_of_a_newer_release_are_refused_with_their_type() -> None:
    with pytest.raises(coordinator.UnknownRecordTypeError, match="unknown record type 99") as caught:
        coordinator.decode_key(coordinator.GROUP, b"\x00\x63rest")
    assert caught.value.number == 99
    with pytest.raises(DecodeError, match="no version 99"):
        coordinator.decode_value(stored.OffsetCommitKey(), b"\x00\x63")


@pytest.mark.parametrize("raw", [b"", b"\x00", b"\x00\x01", b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03more"])
def test_broken_keys_are_refused(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        coordinator.decode_key(coordinator.GROUP, raw)
