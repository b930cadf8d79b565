"""The error response to a request equals Kafka's (getErrorResponse of its request classes)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import codec, messages
from kraft_protocol.wire.api import ApiKey, ApiSpec
from kraft_protocol.wire.classes import Message
from kraft_protocol.wire.error_response import ITEMS_A_STEP, error_response, error_response_in_steps
from tests.wire_oracle import Question, ask, served_specs
from tests.wire_values import random_message

ROUNDS = 5
TEXTS = {"error_message", "error_string"}
"""Not compared: some of Kafka's requests put their own words there, some none, and we what went wrong."""


def _produce(version: int) -> Message:
    topic = messages.ProduceRequest.TopicProduceData
    partition = messages.ProduceRequest.PartitionProduceData
    parts = [partition(3, b"")]  # one for each topic: Kafka's order is a hash map's
    named = [topic(name="a", partition_data=parts), topic(name="b", partition_data=parts)]
    by_id = [topic(topic_id=Uuid(b"i" * 16), partition_data=parts)]
    return messages.ProduceRequest(acks=-1, topic_data=by_id if version >= 13 else named)


def _markers(version: int) -> Message:
    marker = messages.WriteTxnMarkersRequest.WritableTxnMarker
    topic = messages.WriteTxnMarkersRequest.WritableTxnMarkerTopic
    return messages.WriteTxnMarkersRequest([marker(7, 1, True, [topic("a", [2])])])


def _describe_acls(version: int) -> Message:
    return messages.DescribeAclsRequest(2, "a", 3, None, None, 2, 3)


def _create_acls(version: int) -> Message:
    creation = messages.CreateAclsRequest.AclCreation
    return messages.CreateAclsRequest(
        [creation(2, "a", 3, "User:u", "*", 2, 3), creation(2, "b", 3, "User:u", "*", 2, 3)]
    )


def _delete_acls(version: int) -> Message:
    return messages.DeleteAclsRequest([messages.DeleteAclsRequest.DeleteAclsFilter(2, "a", 3, None, None, 2, 3)])


PLAIN = {
    ApiKey.PRODUCE: _produce,
    ApiKey.WRITE_TXN_MARKERS: _markers,
    ApiKey.DESCRIBE_ACLS: _describe_acls,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
}
"""Requests that Kafka's classes merge or refuse when they are filled at random."""


def _request(spec: ApiSpec, version: int, rng: random.Random) -> Message:
    plain = PLAIN.get(spec.key)
    if plain is not None:
        return plain(version)
    made: Any = random_message(spec.request, version, rng)
    if spec.key == ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS:
        made.users = made.users or []  # Kafka's class fails on null
    if spec.key == ApiKey.METADATA:
        for topic in made.topics or []:
            topic.name = topic.name or ""  # as Kafka's class answers a topic without name
    request: Message = made
    return request


def _without_texts(item: Any) -> Any:
    if isinstance(item, list):
        return [_without_texts(part) for part in item]
    if isinstance(item, Message):
        fields = [f for f in item._fields if f not in TEXTS]
        return {f: _without_texts(getattr(item, f)) for f in fields}
    return bytes(item) if isinstance(item, memoryview) else item


def _comparable(cls: type[Message], raw: bytes, version: int) -> Any:
    found = _without_texts(codec.decode(cls, raw, version))
    if cls.__name__ == "AlterUserScramCredentialsResponse":
        found["results"].sort(key=lambda result: result["user"])  # a set in Kafka
    if cls.__name__ == "DescribeUserScramCredentialsResponse":
        found["results"] = len(found["results"])  # Kafka loses the correlation with the request
    return found


@pytest.mark.peer
def test_errors_are_placed_like_by_kafka() -> None:
    rng = random.Random(9)
    requests = [
        (spec, version, _request(spec, version, rng))
        for spec in served_specs()
        for version in range(spec.min_version, spec.max_version + 1)
        for _ in range(ROUNDS)
    ]
    asked: list[Question] = [(r.SCHEMA.name, v, codec.encode(r, v)) for _, v, r in requests]
    for (spec, version, request), theirs in zip(requests, ask("error", asked), strict=True):
        assert isinstance(theirs, bytes), (spec.name, version, theirs)
        response = error_response(request, version, ErrorCode.INVALID_REQUEST, "wrong")
        ours = codec.encode(response, version)
        cls = spec.response
        assert _comparable(cls, ours, version) == _comparable(cls, theirs, version), (spec.name, version, request)


def test_the_message_is_returned_if_the_response_has_a_field() -> None:
    request = messages.DescribeConfigsRequest([messages.DescribeConfigsRequest.DescribeConfigsResource(2, "t")])
    response: Any = error_response(request, 4, ErrorCode.INVALID_CONFIG, "no such thing")
    assert [(r.error_code, r.error_message, r.resource_name) for r in response.results] == [(40, "no such thing", "t")]


def test_the_error_response_to_a_large_request_is_built_in_steps() -> None:
    """At once, 300,000 partitions took the loop three seconds."""
    row, topic = messages.FetchRequest.FetchPartition, messages.FetchRequest.FetchTopic
    rows = [row(number) for number in range(10 * ITEMS_A_STEP)]
    request = messages.FetchRequest(topics=[topic("a", partitions=rows), topic("b", partitions=rows)])
    steps = error_response_in_steps(request, 12, ErrorCode.INVALID_REQUEST)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            assert end.value == error_response(request, 12, ErrorCode.INVALID_REQUEST)
            assert [len(one.partitions) for one in end.value.responses] == [len(rows), len(rows)]
            break
        count += 1
    assert count == 20
