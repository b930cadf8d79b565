"""Any records survive a batch; any damage is one of the declared errors."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from kraft_protocol.records.batch import NewRecord, build_batch, check_batch, iter_records
from kraft_protocol.records.errors import BatchError
from kraft_protocol.records.varint import read_uvarint, write_varint
from tests.property.records.strategies import lists_of_records

LONG = st.integers(-(2**62), 2**62)
RECORDS = lists_of_records(10)


@given(RECORDS, st.integers(0, 4), st.integers(0, 2**40))
def test_any_records_survive_a_batch(records: list[NewRecord], codec: int, base: int) -> None:
    data = build_batch(records, base_offset=base, compression=codec)
    header = check_batch(data)
    assert (header.base_offset, header.count, header.length) == (base, len(records), len(data))
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in iter_records(data)] == [
        (base + i, r.timestamp, r.key, r.value, list(r.headers)) for i, r in enumerate(records)
    ]


@given(RECORDS, st.integers(0, 4), st.data())
def test_any_damage_is_a_declared_error(records: list[NewRecord], codec: int, draw: st.DataObject) -> None:
    """Bytes change without a change of the CRC, as a hostile client would send them."""
    data = bytearray(build_batch(records, compression=codec))
    for _ in range(draw.draw(st.integers(1, 4))):
        data[draw.draw(st.integers(16, len(data) - 1))] = draw.draw(st.integers(0, 255))
    with contextlib.suppress(BatchError):
        check_batch(data)
    with contextlib.suppress(BatchError):
        list(iter_records(data, limit=1 << 20))


@given(LONG)
def test_written_varints_are_read_back(value: int) -> None:
    out = bytearray()
    write_varint(out, value)
    number = sum((byte & 0x7F) << 7 * at for at, byte in enumerate(out))
    assert (number >> 1) ^ -(number & 1) == value
    assert [byte > 0x7F for byte in out] == [True] * (len(out) - 1) + [False]
    assert len(out) == 1 or out[-1], "as short as possible"


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varints_survive_a_round_trip(value: int) -> None:
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    data = bytes([*(group | 0x80 for group in groups[:-1]), groups[-1], 99])
    assert read_uvarint(data, 0) == (value, len(groups))
