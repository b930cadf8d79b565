"""What brokers forward for their clients is handled as if the clients had asked."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.wire import codec
from kraft_node.wire.api import ApiKey
from kraft_node.wire.frames import decode_response, encode_request
from kraft_node.wire.messages import CreateTopicsRequest, EnvelopeRequest, MetadataRequest
from kraft_node.wire.stored import DefaultPrincipalData
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
    from kraft_node.wire.messages import DeleteTopicsRequest

    answer = quorum.respond(sealed(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=["foo"])))
    assert answer.error_code == ErrorCode.NONE
    _, inner = decode_response(answer.response_data, ApiKey.DELETE_TOPICS, 5)
    assert inner.responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED  # type: ignore[attr-defined]


def test_lost_leadership_is_told_to_the_broker() -> None:
    quorum = Quorum()
    quorum.start(1)
    answer = quorum.ask(create("foo"), commit=False)
    quorum.lose()
    assert answer.response.error_code == ErrorCode.NOT_CONTROLLER
    with pytest.raises(KafkaError) as refused:
        quorum.respond(create("foo"))
    assert refused.value.code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize(
    "request_",
    [
        sealed(ApiKey.METADATA, 9, MetadataRequest()),
        EnvelopeRequest(request_data=b"\x00\x13"),
        EnvelopeRequest(request_data=create("foo").request_data + b"more"),
    ],
    ids=["not forwardable", "torn", "too long"],
)
def test_what_does_not_belong_into_an_envelope(request_: EnvelopeRequest) -> None:
    with pytest.raises(KafkaError) as refused:
        Quorum().respond(request_)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
