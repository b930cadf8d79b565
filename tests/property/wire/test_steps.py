"""Decoding and encoding in steps give the same results as at once, and each step is short."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import pytest

from kraft_protocol.wire import codec, messages
from kraft_protocol.wire.errors import DecodeError, EncodeError, TooManyItems
from kraft_protocol.wire.runtime import COUNTED_ITEMS, STEP_ITEMS
from tests.wire_values import all_messages, random_message

COUNT = 20 * STEP_ITEMS


def run(steps: Generator[None, None, Any]) -> tuple[int, Any]:
    """The number of pauses, and the result."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return pauses, end.value
        pauses += 1


def test_decoding_in_steps_equals_decoding_at_once() -> None:
    rng = random.Random(3)
    for cls, version in all_messages():
        message = random_message(cls, version, rng, unknown_tags=True)
        raw = codec.encode(message, version)
        _, parts = run(codec.encode_in_steps(message, version))
        assert b"".join(bytes(part) for part in parts) == raw, (cls.__name__, version)
        _, (again, end) = run(codec.decode_in_steps(cls, memoryview(raw), 0, version, 1 << 20))
        assert (again, end) == (message, len(raw)), (cls.__name__, version)
        if not raw:
            continue
        with pytest.raises(DecodeError):
            run(codec.decode_in_steps(cls, memoryview(raw)[:-1], 0, version, 1 << 20))


def metadata() -> Any:
    topic = messages.MetadataRequest.MetadataRequestTopic
    return messages.MetadataRequest(topics=[topic(name=f"topic-{i}") for i in range(COUNT)])


def offsets() -> Any:
    row = messages.ListOffsetsRequest.ListOffsetsPartition
    topic = messages.ListOffsetsRequest.ListOffsetsTopic("t", [row(i, timestamp=-1) for i in range(COUNT)])
    return messages.ListOffsetsRequest(topics=[topic])


def groups() -> Any:
    return messages.DescribeGroupsRequest(groups=["g"] * COUNT)


def forgotten() -> Any:
    topic = messages.FetchRequest.ForgottenTopic(topic_id=bytes(16), partitions=list(range(COUNT)))
    return messages.FetchRequest(forgotten_topics_data=[topic])


def ids() -> Any:
    return messages.ConsumerGroupHeartbeatRequest(unknown_tags=dict.fromkeys(range(COUNT), b""))


@pytest.mark.parametrize(
    ("make", "version"),
    [(metadata, 4), (metadata, 12), (offsets, 5), (offsets, 7), (groups, 5), (forgotten, 13), (ids, 0)],
)
def test_every_kind_of_array_is_read_in_steps(make: Any, version: int) -> None:
    message = make()
    raw = codec.encode(message, version)
    cls = type(message)
    pauses, (again, _) = run(codec.decode_in_steps(cls, memoryview(raw), 0, version, 2 * COUNT))
    assert again == message
    assert pauses >= COUNT // STEP_ITEMS - 1
    with pytest.raises(TooManyItems):
        run(codec.decode_in_steps(cls, memoryview(raw), 0, version, COUNT // 2))


def test_answers_of_many_parts_are_written_in_steps() -> None:
    pauses, parts = run(codec.encode_in_steps(metadata(), 12))
    assert pauses == COUNT // STEP_ITEMS
    assert b"".join(parts) == codec.encode(metadata(), 12)
    with pytest.raises(EncodeError):
        run(codec.encode_in_steps(messages.HeartbeatRequest(group_id="x" * 40_000), 3))


def test_a_produce_of_very_many_partitions_is_not_decoded_at_once() -> None:
    data = messages.ProduceRequest.PartitionProduceData
    for count in (COUNTED_ITEMS - 1, COUNTED_ITEMS):
        rows = [data(index, b"") for index in range(count)]
        request = messages.ProduceRequest(topic_data=[messages.ProduceRequest.TopicProduceData("t", bytes(16), rows)])
        raw = memoryview(codec.encode(request, 9))
        if count < COUNTED_ITEMS:
            assert codec.decode_few(messages.ProduceRequest, raw, 0, 9) == (request, len(raw))
        else:
            with pytest.raises(TooManyItems):
                codec.decode_few(messages.ProduceRequest, raw, 0, 9)
