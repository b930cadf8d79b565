"""The fast path of snapshots, from bytes to rows and back, against the codec."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.loader import MetadataLoader
from kraft_node.metadata.log_batches import data_batch, encode_values, iter_values
from kraft_node.metadata.partitions import MetadataError
from kraft_node.metadata.records import decode_record
from kraft_node.metadata.snapshot import SnapshotCursor
from kraft_protocol.ids import Uuid
from kraft_protocol.records.batch import build_batch, iter_records, read_header
from kraft_protocol.wire import stored
from tests.property.metadata.naive import Stories, dump
from tests.tiers import examples

SEEDS = st.integers(0, 2**32)
TOPIC = Uuid(b"T" * 16)


def _image(seed: int, count: int, level: int) -> tuple[MetadataImage, Stories]:
    stories = Stories(seed)
    stories.model.replay(first := stored.FeatureLevelRecord(name="metadata.version", feature_level=level))
    image = MetadataImage()
    for record in [first, *stories.records(count)]:
        image.replay(record)
    return image, stories


def _counts(image: MetadataImage) -> list[dict[Any, int]]:
    """How often each list is in use, without zero's own."""
    lists = image.topics.lists
    return [
        {value: kept.counts[number] for value, number in kept._numbers.items() if number}
        for kept in (lists.brokers, lists.directories, lists.extras)
    ]


@settings(max_examples=examples(80), deadline=None)
@given(SEEDS, st.integers(0, 150), st.integers(1, 7), st.integers(0, 5), st.sampled_from([7, 17, 30]))
def test_written_values_equal_those_of_the_codec(seed: int, count: int, size: int, meanwhile: int, level: int) -> None:
    """This holds although the image changes between the slices."""
    image, stories = _image(seed, count, level)
    written: list[bytes] = []
    with SnapshotCursor(image) as slow, SnapshotCursor(image) as fast:
        expected = encode_values(list(slow), slow.metadata_level)
        while values := fast.next_values(size):
            written += values
            for record in stories.records(meanwhile):
                image.replay(record)
    assert written == expected
    assert dump(image) == stories.model.dump()


@settings(max_examples=examples(80), deadline=None)
@given(SEEDS, st.integers(0, 150), st.integers(0, 50), st.sampled_from([7, 17, 30]))
def test_values_read_equal_those_of_the_codec(seed: int, count: int, before: int, level: int) -> None:
    """Read into an image that held something else; every list is counted as if each record had been replayed."""
    image, _ = _image(seed, count, level)
    with SnapshotCursor(image) as cursor:
        values = encode_values(list(cursor), cursor.metadata_level)
    records = [decode_record(value) for value in values]
    slow, fast = MetadataLoader(), MetadataLoader()
    for loader in (slow, fast):
        loader.apply([(at, record) for at, record in enumerate(Stories(seed + 1).records(before))], 1, 0)
        loader.publish()
    slow.load(records, 1000, 2, 3)
    fast.load_values(iter(values), 1000, 2, lambda: 3)
    assert dump(fast.image) == dump(slow.image)
    assert _counts(fast.image) == _counts(slow.image)
    assert fast.image.topics.partition_count == slow.image.topics.partition_count
    assert (fast.image.offset, fast.image.epoch, fast.image.timestamp_ms) == (1000, 2, 3)
    reported, expected = fast.publish(is_snapshot=True), slow.publish(is_snapshot=True)
    assert {i: change.partitions for i, change in reported.topics.items()} == {
        i: change.partitions for i, change in expected.topics.items()
    }


def _partition(**fields: Any) -> bytes:
    base = {"partition_id": 0, "topic_id": TOPIC, "replicas": [1, 2], "isr": [1], "leader": 1}
    [value] = encode_values([stored.PartitionRecord(**{**base, "directories": [Uuid(b"d" * 16)] * 2, **fields})], 30)
    return value


@given(st.data())
@settings(max_examples=examples(100), deadline=None)
def test_damaged_partitions_are_left_to_the_codec(data: st.DataObject) -> None:
    """For any bytes both give the same image or an error."""
    value = bytearray(_partition())
    for _ in range(data.draw(st.integers(0, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(value[: data.draw(st.integers(1, len(value)))])
    [topic] = encode_values([stored.TopicRecord(name="t", topic_id=TOPIC)], 30)
    results: list[Any] = []
    for values in ([topic, cut], [topic, *_by_codec(cut)]):
        loader = MetadataLoader()
        try:
            loader.load_values(values, 5, 1, lambda: 0)
        except MetadataError:
            results.append("refused")
        else:
            results.append(dump(loader.image))
    assert results[0] == results[1]


def _by_codec(value: bytes) -> list[bytes]:
    """The same record in a form that the fast path refuses: partition 0 occurs twice."""
    return [_partition(), value] if value[3:7] == b"\0\0\0\0" else [value]


def test_a_partition_of_an_unknown_topic_is_refused() -> None:
    with pytest.raises(MetadataError, match="topic that does not exist"):
        MetadataLoader().load_values([_partition()], 5, 1, lambda: 0)


def test_an_unknown_record_is_refused_by_name() -> None:
    with pytest.raises(MetadataError, match="in a snapshot"):
        MetadataLoader().load_values([b"\x01\x63\x00"], 5, 1, lambda: 0)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=200), st.integers(0, 2**40))
def test_batches_equal_those_of_the_general_builder(values: list[bytes], offset: int) -> None:
    batch = data_batch(values, offset, 7, 12345)
    assert batch == build_batch([(None, v) for v in values], base_offset=offset, leader_epoch=7, timestamp=12345)
    assert list(iter_values(batch, read_header(batch))) == values


@settings(max_examples=examples(150), deadline=None)
@given(SEEDS)
def test_values_equal_those_of_the_general_reader(seed: int) -> None:
    """Plain values, values with keys, headers and times, compressed ones, and damage."""
    rng = Random(seed)
    values = [rng.randbytes(rng.choice((0, 1, 60, 127, 128, 20_000))) for _ in range(rng.randint(0, 8))]
    records = [(rng.choice((None, None, b"k")), value) for value in values]
    batch = bytearray(build_batch(records, timestamp=5, compression=rng.choice((0, 0, 0, 1))))
    if rng.random() < 0.5:
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(61, len(batch)) if len(batch) > 61 else 0
            batch[at] ^= 1 << rng.randrange(8) if at else 0
    header = read_header(batch)
    results: list[Any] = []
    by_records = ((record.value or b"") for record in iter_records(batch, header))
    for found in (iter_values(batch, header), by_records):
        try:
            results.append(list(found))
        except ValueError as e:
            results.append(type(e))
    assert results[0] == results[1]
