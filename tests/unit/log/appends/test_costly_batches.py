"""Bounds of a batch before it is stored: bytes decompressed, records read at once, memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from kraft_node.log import validate
from kraft_node.log.validate import INLINE_RECORDS, Checked, LongCheck, output_limit
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records import compression
from kraft_protocol.records.batch import HEADER_SIZE, build_batch, seal
from kraft_protocol.records.compression import Compression, compress
from kraft_protocol.records.varint import write_varint
from tests.unit.log.world import NOW, LogWorld

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
MEMORY_MAX = 4 << 20
ZSTD_ROOM = 16 << 20
"""The library cannot stop within a frame; the room for it grows by four."""


def bomb(codec: int, count: int, *, base: int = 1000, latest: int = 999, value: bytes = b"", headers: int = 0) -> bytes:
    """A batch of `count` equal records, whose last timestamp in the header is before the first."""
    body = bytearray(b"\x00\x00\x00\x01")
    write_varint(body, len(value))
    body += value
    write_varint(body, headers)
    body += b"\x00\x01" * headers
    record = bytearray()
    write_varint(record, len(body))
    record += body
    return seal(0, -1, (codec, count - 1, base, latest, -1, -1, -1, count), compress(codec, bytes(record) * count))


def offsets_in_order(codec: int, count: int) -> bytes:
    return build_batch([(b"k", b"v" * 20)] * count, timestamp=1000, compression=codec)


def run(steps: Any) -> tuple[int, int | KafkaError]:
    """The number of steps, and the outcome."""
    number = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return number, end.value
        except KafkaError as error:
            return number, error
        number += 1


def read_at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of records that each look at records reads."""
    seen: list[int] = []
    real = validate.read_columns

    def counted(data: Any, position: int, count: int, columns: Any, **options: Any) -> int:
        result = real(data, position, count, columns, **options)
        seen.append(len(columns))
        return result

    monkeypatch.setattr(validate, "read_columns", counted)
    return seen


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_of_records_is_not_read_at_once(codec: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = read_at_once(monkeypatch)
    log = LogWorld().open()
    batch = bomb(codec, 600_000)
    tracemalloc.start()
    try:
        with pytest.raises(LongCheck) as refused:
            log.append_as_leader(batch, 0, NOW)
        assert sum(seen) <= INLINE_RECORDS
        _, result = run(refused.value.steps(batch))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(result, KafkaError)
    assert max(seen, default=0) <= validate.STEP_BYTES // 7 + 1
    assert peak < MEMORY_MAX + (ZSTD_ROOM if codec == Compression.ZSTD else 0)


@pytest.mark.parametrize("codec", CODECS)
def test_decompression_follows_max_message_bytes(codec: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogWorld().open({"max.message.bytes": "100000"})
    limit = output_limit(log.config)
    batch = bomb(codec, 1, value=bytes(limit + 1 if codec != Compression.SNAPPY else 2_000_000))
    given = 0
    real = compression.decompress_pieces

    def counted(*args: Any) -> Any:
        nonlocal given
        for piece in real(*args):
            given += len(piece)
            yield piece

    monkeypatch.setattr(validate, "decompress_pieces", counted)
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(batch, 0, NOW)
    assert given <= validate.INLINE_BYTES + 64 * 1024
    given = 0
    assert isinstance(refused.value, LongCheck)
    _, result = run(refused.value.steps(batch))
    if codec != Compression.SNAPPY:  # it does not reach 1:32
        assert isinstance(result, KafkaError)
        assert result.code == ErrorCode.MESSAGE_TOO_LARGE
    assert given <= limit


@pytest.mark.parametrize("codec", [Compression.NONE, *CODECS])
def test_a_long_check_gives_the_result_of_a_short_one(codec: Compression) -> None:
    count = 4 * INLINE_RECORDS
    batch = offsets_in_order(codec, count)
    log = LogWorld().open({"cleanup.policy": "compact"})
    with pytest.raises(LongCheck) as refused:
        log.append_as_leader(batch, 0, NOW)
    number, found = run(refused.value.steps(batch))
    assert found == Checked(1000)
    assert number > 5
    info = log.append_as_leader(batch, 0, NOW, checked=Checked(1000))
    assert (info.base_offset, info.last_offset) == (0, count - 1)


def test_records_larger_than_a_step_are_read() -> None:
    log = LogWorld().open({"cleanup.policy": "compact"})
    values = [b"x" * 50_000, b"", b"y" * 16_384, b"z" * 3]
    batch = build_batch([(b"k", value) for value in values], timestamp=1000)
    assert log.append_as_leader(batch, 0, NOW).last_offset == 3


def test_a_record_of_very_many_headers_is_refused() -> None:
    log = LogWorld().open()
    assert log.append_as_leader(bomb(0, 1, base=5, latest=5, headers=10_000), 0, NOW).last_offset == 0
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(bomb(0, 1, base=5, latest=5, headers=10_001), 0, NOW)
    assert refused.value.code == ErrorCode.INVALID_RECORD


def test_data_after_the_last_record_is_refused() -> None:
    log = LogWorld().open({"cleanup.policy": "compact"})
    good = bomb(0, 1, base=5, latest=5)[HEADER_SIZE:]
    for rest in (1, 50_000, 500_000):
        batch = seal(0, -1, (0, 0, 5, 5, -1, -1, -1, 1), good + bytes(rest))
        with pytest.raises(KafkaError) as refused:
            log.append_as_leader(batch, 0, NOW)
        found: object = refused.value
        if isinstance(found, LongCheck):
            _, found = run(found.steps(batch))
        assert isinstance(found, KafkaError)
        assert found.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("codec", "count"), [(0, 1), (0, 150), (Compression.LZ4, 1), (Compression.LZ4, 150)])
def test_a_sound_batch_is_stored_without_a_full_check(codec: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(*_: Any, **__: Any) -> Any:
        raise AssertionError("a sound batch has all its records read")

    looked_at: list[int] = []
    real = validate.read_shapes

    def counted(section: Any, few: int) -> Any:
        looked_at.append(few)
        return real(section, few)

    monkeypatch.setattr(validate, "Columns", unwanted)
    monkeypatch.setattr(validate, "read_columns", unwanted)
    monkeypatch.setattr(validate, "read_shapes", counted)
    batch = build_batch([(None, b"v" * 100)] * count, timestamp=NOW, compression=Compression(codec))
    assert LogWorld().open().append_as_leader(batch, 0, NOW).last_offset == count - 1
    assert looked_at == ([1] if count == 1 else [])


def test_records_of_a_kilobyte_are_read_in_few_steps() -> None:
    """Each step cost as much however few records it held: every record read was a second of processor time a GB."""
    log = LogWorld().open({"cleanup.policy": "compact"})
    batch = build_batch([(b"k", bytes(1024))] * 900, timestamp=1000)
    with pytest.raises(LongCheck) as refused:
        log.append_as_leader(batch, 0, NOW)
    number, found = run(refused.value.steps(batch))
    assert found == Checked(1000)
    assert number <= 2


def test_many_small_records_before_a_large_one_are_read_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a step follows the mean size of the records, which one of them can raise."""
    in_step, most = 0, 0
    real = validate.read_alike

    def counted(*where: Any) -> Any:
        nonlocal in_step, most
        found = real(*where)
        in_step += 0 if found is None else found.records
        most = max(most, in_step)
        return found

    monkeypatch.setattr(validate, "read_alike", counted)
    log = LogWorld().open({"cleanup.policy": "compact", "max.message.bytes": "30000000", "segment.bytes": "100000000"})
    batch = build_batch([(b"k", b"v")] * 60_000 + [(b"k", bytes(20_000_000))], timestamp=1000)
    with pytest.raises(LongCheck) as refused:
        log.append_as_leader(batch, 0, NOW)
    steps = refused.value.steps(batch)
    while True:
        in_step = 0
        try:
            next(steps)
        except StopIteration as end:
            assert end.value == Checked(1000)
            break
    assert 0 < most <= 2 * validate.STEP_RECORDS
