"""Requests that brokers forward for their clients: Envelope (58) v0 (KIP-590).

Inside is the client's whole request, header and body, with the client's principal and address. It is handled as if
the client had asked the controller itself. The envelope has an error of its own only for what concerns the broker: it
asked the wrong controller (NOT_CONTROLLER), forwarded what is not to be forwarded, or for no address (INVALID_REQUEST),
for nobody (PRINCIPAL_DESERIALIZATION_FAILURE), or what cannot be read here (UNSUPPORTED_VERSION).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.base.request import Handler, RequestContext
from kraft_node.wire import codec
from kraft_node.wire.api import API, ApiKey
from kraft_node.wire.error_response import error_response
from kraft_node.wire.errors import DecodeError
from kraft_node.wire.frames import LENGTH_SIZE, decode_request_header, encode_response
from kraft_node.wire.messages import EnvelopeRequest, EnvelopeResponse
from kraft_node.wire.stored import DefaultPrincipalData

FORWARDABLE: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
"""What brokers forward; anything else in an envelope is a mistake."""

IPV4_SIZE: Final = 4
IPV6_SIZE: Final = 16


class Envelopes:
    """Opens envelopes; `handlers` is asked for what is inside, `is_active` whether this controller is the right one."""

    __slots__ = ("_handlers", "_is_active")

    def __init__(self, handlers: Mapping[ApiKey, Handler], is_active: Callable[[], bool]) -> None:
        self._handlers = handlers
        self._is_active = is_active

    def handle(self, ctx: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse | None:
        if not self._is_active():
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        inner, message = self._open(ctx, request)
        try:
            response = self._handlers[ApiKey(inner.api_key)](inner, message)
        except KafkaError as e:
            if e.code == ErrorCode.NOT_CONTROLLER:
                raise
            response = error_response(message, inner.api_version, e.code, e.message)
        return None if response is None else _sealed(inner, response)

    def _open(self, ctx: RequestContext, request: EnvelopeRequest) -> tuple[RequestContext, Any]:
        principal = _principal(request.request_principal)
        host = _host(bytes(request.client_host_address))
        try:
            # The frame lives in the connection's buffer, and answers may come later: what is kept is copied.
            frame = memoryview(bytes(request.request_data))
            header = decode_request_header(frame)
            key = header.api_key
            if key not in API:
                raise DecodeError(f"there is no api key {key}")
            if key not in FORWARDABLE or ApiKey(key) not in self._handlers:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Requests of api key {key} are not forwarded.")
            if header.api_version not in API[ApiKey(key)].versions:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Api key {key} has no version {header.api_version}.")
            message, _ = codec.decode_from(API[ApiKey(key)].request, frame, header.body_offset, header.api_version)
        except DecodeError as e:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"The forwarded request cannot be read: {e}") from None

        def reply(inner: RequestContext, response: Any) -> None:
            if self._is_active():
                ctx.respond(_sealed(inner, response))
            else:
                # The answer was dropped with leadership: the broker is to ask the next controller.
                ctx.respond(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))

        inner = RequestContext(
            key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            host,
            ctx.listener,
            principal,
            ctx.connection,
            ctx.received_ms,
            reply,
        )
        return inner, message


def _sealed(inner: RequestContext, response: Any) -> EnvelopeResponse:
    parts = encode_response(inner.correlation_id, inner.api_key, inner.api_version, response)
    whole = b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]  # administrators' answers hold no files
    return EnvelopeResponse(response_data=whole[LENGTH_SIZE:])


def _principal(data: Any) -> str:
    """The text of a serialized KafkaPrincipal: a version, then DefaultPrincipalData."""
    raw = b"" if data is None else bytes(data)
    version = int.from_bytes(raw[:2], "big")
    try:
        if len(raw) < 2 or version not in DefaultPrincipalData.SCHEMA.valid:
            raise DecodeError(f"there is no version {version}")
        principal, _ = codec.decode_from(DefaultPrincipalData, memoryview(raw), 2, version)
    except DecodeError as e:
        message = f"The client's principal in the envelope cannot be read: {e}"
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, message) from None
    return f"{principal.type}:{principal.name}"


def _host(address: bytes) -> str:
    if len(address) == IPV4_SIZE:
        return ".".join(map(str, address))
    if len(address) != IPV6_SIZE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The client's address in the envelope has {len(address)} bytes.")
    return ":".join(address[at : at + 2].hex() for at in range(0, len(address), 2))
