"""Every message and version: an encoded message decodes to an equal one, which encodes to the same bytes."""

from __future__ import annotations

import random

import pytest

from kraft_protocol.buffers import FileSlice
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import codec, messages, stored
from kraft_protocol.wire.errors import DecodeError, EncodeError
from tests.wire_values import all_messages, random_message

ROUNDS = 4


def test_random_messages_survive_with_unknown_tags() -> None:
    rng = random.Random(1)
    for cls, version in all_messages():
        for _ in range(ROUNDS):
            message = random_message(cls, version, rng, unknown_tags=True)
            raw = codec.encode(message, version)
            for buffer in (raw, memoryview(raw), bytearray(raw)):
                assert codec.decode(cls, buffer, version) == message, (cls.__name__, version)
            assert codec.encode(codec.decode(cls, raw, version), version) == raw


def test_every_prefix_is_refused() -> None:
    rng = random.Random(2)
    for cls, version in all_messages():
        raw = codec.encode(random_message(cls, version, rng), version)
        for size in {*range(min(len(raw), 40)), max(len(raw) - 1, 0)} - {len(raw)}:
            with pytest.raises(DecodeError):
                codec.decode(cls, raw[:size], version)
        with pytest.raises(DecodeError, match="follow"):
            codec.decode(cls, raw + b"\x00", version)


def test_records_are_views_when_decoded_and_uncopied_when_encoded() -> None:
    partition = messages.ProduceRequest.PartitionProduceData
    topic = messages.ProduceRequest.TopicProduceData
    records = bytes(10_000)
    request = messages.ProduceRequest(topic_data=[topic("t", partition_data=[partition(0, records)])])
    raw = codec.encode(request, 9)
    decoded = codec.decode(messages.ProduceRequest, raw, 9)
    view = decoded.topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert view.obj is raw
    parts = codec.encode_parts(request, 9)
    assert any(part is records for part in parts)


def test_file_slices_become_separate_parts() -> None:
    class Stub:
        def pread(self, position: int, length: int) -> bytes:
            return bytes(range(256))[position : position + length]

    data = messages.FetchResponse.PartitionData(0, records=FileSlice(Stub(), 10, 5))  # type: ignore[arg-type]
    topic = messages.FetchResponse.FetchableTopicResponse("t", partitions=[data])
    response = messages.FetchResponse(responses=[topic])
    parts = codec.encode_parts(response, 12)
    assert [type(p).__name__ for p in parts] == ["bytearray", "FileSlice", "bytearray"]
    again = codec.decode(messages.FetchResponse, codec.encode(response, 12), 12)
    assert bytes(again.responses[0].partitions[0].records) == bytes(range(10, 15))  # type: ignore[arg-type]


def test_a_value_that_the_version_lacks_is_refused() -> None:
    request = messages.FindCoordinatorRequest(key="k", coordinator_keys=["a"])
    with pytest.raises(EncodeError, match="coordinator_keys"):
        codec.encode(request, 3)
    with pytest.raises(EncodeError, match="no version 99"):
        codec.encode(request, 99)
    with pytest.raises(EncodeError):
        codec.encode(messages.MetadataRequest(topics=[messages.MetadataRequest.MetadataRequestTopic(name=None)]), 9)
    with pytest.raises(EncodeError):
        codec.encode(messages.DescribeClusterResponse(endpoint_type=300), 1)


def test_malformed_fields_have_one_typed_error() -> None:
    record = stored.TopicRecord("topic", Uuid(bytes(16)))
    raw = bytearray(codec.encode(record, 0))
    assert raw[0] == 6
    for change in (0, 127, 255):
        raw[0] = change
        with pytest.raises(DecodeError):
            codec.decode(stored.TopicRecord, bytes(raw), 0)
    raw[:2] = b"\x06\xff"
    with pytest.raises(DecodeError, match="utf-8"):
        codec.decode(stored.TopicRecord, bytes(raw), 0)


def test_a_declared_count_allocates_no_memory() -> None:
    with pytest.raises(DecodeError, match="wants 1000000"):
        codec.decode(messages.MetadataRequest, (1_000_000).to_bytes(4) + bytes(1000), 1)
    with pytest.raises(DecodeError):
        codec.decode(messages.MetadataRequest, b"\xff\xff\xff\xff\x0f\x00\x00\x00", 9)
