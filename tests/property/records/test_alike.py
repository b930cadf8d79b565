"""Records read by columns against the same records read one by one: after any change of a byte, both agree."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from kraft_node.log import validate
from kraft_protocol.errors import KafkaError
from kraft_protocol.records import alike
from kraft_protocol.records.batch import HEADER_SIZE, NewRecord, build_batch, read_header
from kraft_protocol.records.shapes import Columns, read_columns
from tests.tiers import seeds

NOW_MS = 1_700_000_000_000


def config(**fields: Any) -> Any:
    plain = {
        "message_timestamp_before_max_ms": 1 << 62,
        "message_timestamp_after_max_ms": 1 << 62,
        "compact": False,
        "log_append_time": False,
        "max_message_bytes": 1 << 20,
        "compression_type": "producer",
    }
    return SimpleNamespace(**{**plain, **fields})


def some_batch(rng: random.Random, *, compression: int = 0) -> bytearray:
    """Runs of alike records of many kinds, with others between them."""
    records = []
    while len(records) < rng.choice([10, 60, 300]):
        key = rng.choice([None, b"", b"k" * rng.choice([1, 70])])
        value = rng.choice([None, b"v" * rng.choice([0, 1, 100, 9000])])
        headers = tuple(("h" * rng.randrange(3), rng.choice([None, b"x"])) for _ in range(rng.choice([0, 0, 1, 20])))
        step = rng.choice([0, 1, 50, 100_000, -3])
        for number in range(rng.choice([1, 3, 8, 40, 90])):
            when = NOW_MS + len(records) + step * number
            records.append(NewRecord(key, value, when, headers))
    return bytearray(build_batch(records, compression=compression))


def damage(rng: random.Random, section: bytearray, first: int) -> None:
    for _ in range(rng.choice([0, 0, 1, 2])):
        at = rng.randrange(first, len(section))
        section[at] = rng.choice([0, 1, 2, 127, 128, 129, 255, rng.randrange(256)])


@pytest.mark.parametrize("seed", seeds(range(300), everyday=100))
def test_alike_records_equal_those_read_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    batch = some_batch(rng)
    damage(rng, batch, HEADER_SIZE)
    data, count = bytes(batch[HEADER_SIZE:]), read_header(batch).count
    position = offset = found = 0
    while offset < count:
        run = alike.read_alike(data, position, count - offset, offset)
        columns = Columns()
        try:
            after = read_columns(data, position, 1 if run is None else run.records, columns, is_last=True)
        except KafkaError:
            raise AssertionError("not an error of this layer") from None
        except Exception:
            assert run is None, "what cannot be read is not taken"
            return
        if run is not None:
            found += 1
            assert len(columns) == run.records
            assert (run.end, run.smallest, run.largest) == (after, min(columns.timestamps), max(columns.timestamps))
            assert {key >= 0 for key in columns.keys} == {run.has_keys}
            assert run.in_order == columns.are_in_order(offset)
        elif not len(columns):
            return
        position, offset = after, offset + len(columns)
    assert found or count < 60 or seed % 7


def outcome(batch: bytes, settings: Any) -> Any:
    try:
        steps = validate._steps(batch, read_header(batch), settings, NOW_MS, "t-0")
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
    except KafkaError as error:
        return error.code, error.message, getattr(error, "record_errors", None)


SETTINGS = [
    config(),
    config(compact=True),
    config(message_timestamp_before_max_ms=10, message_timestamp_after_max_ms=5_000),
    config(log_append_time=True),
]


@pytest.mark.parametrize("compression", [0, 3])
@pytest.mark.parametrize("seed", seeds(range(150), everyday=50))
def test_a_batch_is_judged_the_same_by_both_readers(
    seed: int, compression: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    batch = some_batch(rng, compression=compression)
    if not compression:
        damage(rng, batch, HEADER_SIZE)
    elif rng.random() < 0.3:
        batch[57:61] = (read_header(batch).count + rng.choice([-1, 1])).to_bytes(4, "big")
    monkeypatch.setattr(validate, "PIECE_BYTES", rng.choice([97, 4096, 65536]))
    by_columns = [outcome(bytes(batch), settings) for settings in SETTINGS]
    monkeypatch.setattr(validate, "read_alike", lambda *_: None)
    assert by_columns == [outcome(bytes(batch), settings) for settings in SETTINGS]


def test_very_large_offset_ranges_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [NewRecord(None, b"", NOW_MS)] * (alike.OFFSETS_MAX + 100)
    batch = build_batch(records, compression=3)
    assert outcome(batch, config()) == NOW_MS
    gap = build_batch(
        [NewRecord(None, b"", NOW_MS, offset=number + (number > 50)) for number in range(100)], compression=3
    )
    assert outcome(gap, config())[1] == "t-0: the offsets of compressed records leave gaps"


def test_uniform_records_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_by_one(*_: Any, **__: Any) -> int:
        raise AssertionError("read one by one")

    monkeypatch.setattr(validate, "read_columns", one_by_one)
    for compression in (0, 3):
        records = [NewRecord(None, b"x" * 100, NOW_MS + number // 50) for number in range(600)]
        headers = [record._replace(headers=(("trace", b"x" * 16),)) for record in records]
        for each in (records[:60], headers[:60]):
            assert outcome(build_batch(each, compression=compression), config()) == NOW_MS + 1
