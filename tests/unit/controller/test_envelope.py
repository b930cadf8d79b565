"""A request that a broker forwards is handled as if its client had sent it."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire import codec
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.frames import decode_response, encode_request
from kraft_protocol.wire.messages import CreateTopicsRequest, EnvelopeRequest, MetadataRequest
from kraft_protocol.wire.stored import DefaultPrincipalData
from tests.unit.controller.harness import Quorum


def sealed(key: ApiKey, version: int, request: Any) -> EnvelopeRequest:
    frame = b"".join(bytes(part) for part in encode_request(77, key, version, "app", request))  # type: ignore[arg-type]
    principal = b"\x00\x00" + codec.encode(DefaultPrincipalData(type="User", name="alice"), 0)
    return EnvelopeRequest(
        request_data=frame[4:], request_principal=principal, client_host_address=bytes([10, 0, 0, 1])
    )


def create(name: str) -> EnvelopeRequest:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return sealed(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))


def test_the_answer_is_the_clients_with_its_correlation_id() -> None:
    quorum = Quorum()
    quorum.start(1)
    answer = quorum.ask(create("foo"), commit=False)
    assert not answer.given, "it waits for the commit like any other"
    quorum.commit()
    assert answer.response.error_code == ErrorCode.NONE
    correlation_id, inner = decode_response(answer.response.response_data, ApiKey.CREATE_TOPICS, 7)
    assert correlation_id == 77
    assert inner.topics[0].error_code == ErrorCode.NONE  # type: ignore[attr-defined]
    assert quorum.image.topics.by_name("foo") is not None


def test_an_error_of_the_request_stays_inside() -> None:
    quorum = Quorum(delete_topic_enable="false")
    from kraft_protocol.wire.messages import DeleteTopicsRequest

    answer = quorum.respond(sealed(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=["foo"])))
    assert answer.error_code == ErrorCode.NONE
    _, inner = decode_response(answer.response_data, ApiKey.DELETE_TOPICS, 5)
    assert inner.responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED  # type: ignore[attr-defined]


def test_lost_leadership_is_reported_to_the_broker() -> None:
    quorum = Quorum()
    quorum.start(1)
    answer = quorum.ask(create("foo"), commit=False)
    quorum.lose()
    assert answer.response.error_code == ErrorCode.NOT_CONTROLLER
    with pytest.raises(KafkaError) as refused:
        quorum.respond(create("foo"))
    assert refused.value.code == ErrorCode.NOT_CONTROLLER


def with_principal(data: bytes | None) -> EnvelopeRequest:
    request = create("foo")
    request.request_principal = data
    return request


def with_address(data: bytes) -> EnvelopeRequest:
    request = create("foo")
    request.client_host_address = data
    return request


def with_data(data: bytes) -> EnvelopeRequest:
    request = create("foo")
    request.request_data = data
    return request


WRONG: dict[str, tuple[EnvelopeRequest, ErrorCode]] = {
    "not forwardable": (sealed(ApiKey.METADATA, 9, MetadataRequest()), ErrorCode.INVALID_REQUEST),
    "an envelope": (sealed(ApiKey.ENVELOPE, 0, create("foo")), ErrorCode.INVALID_REQUEST),
    "torn header": (with_data(b"\x00\x13"), ErrorCode.UNSUPPORTED_VERSION),
    "torn body": (with_data(create("foo").request_data[:-9]), ErrorCode.UNSUPPORTED_VERSION),
    "no such api": (with_data(b"\x7f\x13" + bytes(10)), ErrorCode.UNSUPPORTED_VERSION),
    "no such version": (with_data(b"\x00\x13\x00\x63" + create("foo").request_data[4:]), ErrorCode.UNSUPPORTED_VERSION),
    "no principal": (with_principal(None), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    "torn principal": (with_principal(b"\x00\x00\x05User"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    "a principal of tomorrow": (with_principal(b"\x00\x09\x05User\x02a"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    "no address": (with_address(b""), ErrorCode.INVALID_REQUEST),
    "an odd address": (with_address(b"\x0a\x00"), ErrorCode.INVALID_REQUEST),
}
"""As Apache Kafka answers them (tests/golden/controller asks it)."""


@pytest.mark.parametrize("what", WRONG)
def test_a_request_that_cannot_be_forwarded_is_refused(what: str) -> None:
    request, code = WRONG[what]
    quorum = Quorum()
    quorum.start(1)
    with pytest.raises(KafkaError) as refused:
        quorum.respond(request)
    assert refused.value.code == code


def test_bytes_after_the_request_are_ignored() -> None:
    quorum = Quorum()
    quorum.start(1)
    assert quorum.respond(with_data(create("foo").request_data + b"more")).error_code == ErrorCode.NONE
