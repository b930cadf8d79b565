"""Requests that brokers forward for their clients: Envelope (58) v0 (KIP-590).

The envelope holds the client's whole request, header and body, with the client's principal and address. It is handled
as if the client had sent it to the controller. The envelope has its own error only if the broker made a mistake. It
used the wrong controller (NOT_CONTROLLER), or forwarded a request that must not be forwarded or an invalid address
(INVALID_REQUEST). Or it sent an unreadable principal (PRINCIPAL_DESERIALIZATION_FAILURE), or a request that cannot be
decoded here (UNSUPPORTED_VERSION).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from kraft_node.base.long_answers import answer_later
from kraft_node.base.request import Handler, RequestContext, TokenPrincipal
from kraft_node.base.turns import Turns
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire import codec
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.error_response import error_response
from kraft_protocol.wire.errors import DecodeError
from kraft_protocol.wire.frames import (
    LENGTH_SIZE,
    RequestHeader,
    decode_request_header,
    encode_response,
    encode_response_in_steps,
)
from kraft_protocol.wire.messages import EnvelopeRequest, EnvelopeResponse
from kraft_protocol.wire.sizes import is_long
from kraft_protocol.wire.stored import DefaultPrincipalData

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
"""The APIs that brokers forward; any other request in an envelope is an error."""

LARGE_BYTES: Final = 16 * 1024
ITEMS_MAX: Final = 100_000
"""A larger forwarded request is decoded in turns, and refused if it has more items. Brokers forward large requests in
pieces."""
DECODING_MAX: Final = 40
"""Maximum of large requests that are decoded at the same time."""

IPV4_SIZE: Final = 4
IPV6_SIZE: Final = 16


class Envelopes:
    """Opens envelopes. `handlers` answer the inner requests; `is_active` returns whether this controller is active."""

    __slots__ = ("_decoding", "_handlers", "_is_active", "_turns")

    def __init__(self, handlers: Mapping[ApiKey, Handler], is_active: Callable[[], bool], turns: Turns) -> None:
        self._handlers = handlers
        self._is_active = is_active
        self._turns = turns
        self._decoding = 0

    def handle(self, ctx: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse | None:
        """The answer in an envelope; None if it comes later. A large request is decoded in turns."""
        if not self._is_active():
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        # The frame lives in the connection's buffer, and answers may come later, so it is copied.
        frame = memoryview(bytes(request.request_data))
        header, inner = self._address(ctx, request, frame)
        if len(frame) > LARGE_BYTES:
            if self._decoding >= DECODING_MAX:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, f"{DECODING_MAX} large requests are being decoded already"
                )
            answer_later(self._turns, ctx, request, self._in_turns(frame, header, inner))
            return None
        with _readable():
            message, _ = codec.decode_from(
                API[ApiKey(inner.api_key)].request, frame, header.body_offset, inner.api_version
            )
        return self._call_handler(inner, message)

    def _in_turns(
        self, frame: memoryview, header: RequestHeader, inner: RequestContext
    ) -> Generator[None, None, EnvelopeResponse | None]:
        kind = API[ApiKey(inner.api_key)].request
        self._decoding += 1
        try:
            with _readable():
                message, _ = yield from codec.decode_in_steps(
                    kind, frame, header.body_offset, inner.api_version, ITEMS_MAX
                )
        finally:
            self._decoding -= 1
        if not self._is_active():
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        response = self._call_handler(inner, message)
        if response is None:
            return None
        inner.finish()
        return response

    def _call_handler(self, inner: RequestContext, message: Any) -> EnvelopeResponse | None:
        try:
            response = self._handlers[ApiKey(inner.api_key)](inner, message)
        except KafkaError as e:
            if e.code == ErrorCode.NOT_CONTROLLER:
                raise
            response = error_response(message, inner.api_version, e.code, e.message)
        return None if response is None else _sealed(inner, response)

    def _address(
        self, ctx: RequestContext, request: EnvelopeRequest, frame: memoryview
    ) -> tuple[RequestHeader, RequestContext]:
        """The inner header, and the inner request in its client's context."""
        principal = _principal(request.request_principal)
        host = _host(bytes(request.client_host_address))
        with _readable():
            header = decode_request_header(frame)
            key = header.api_key
            if key not in API:
                raise DecodeError(f"unknown api key {key}")
        if key not in FORWARDABLE or ApiKey(key) not in self._handlers:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Requests of api key {key} are not forwarded.")
        if header.api_version not in API[ApiKey(key)].versions:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Api key {key} has no version {header.api_version}.")

        def reply(inner: RequestContext, response: Any) -> None:
            if not self._is_active():
                # Leadership is lost, so the answer was dropped: the broker must send the request to the next
                # controller.
                ctx.respond(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
            elif is_long(type(response))(response):
                answer_later(self._turns, ctx, request, _sealed_in_turns(inner, response))
            else:
                ctx.respond(_sealed(inner, response))

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
        return header, inner


@contextmanager
def _readable() -> Iterator[None]:
    """Converts decoding errors to UNSUPPORTED_VERSION."""
    try:
        yield
    except DecodeError as e:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"The forwarded request cannot be read: {e}") from None


def _sealed_in_turns(inner: RequestContext, response: Any) -> Generator[None, None, EnvelopeResponse]:
    parts = yield from encode_response_in_steps(inner.correlation_id, inner.api_key, inner.api_version, response)
    whole = b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]  # administrators' answers hold no files
    return EnvelopeResponse(response_data=whole[LENGTH_SIZE:])


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
            raise DecodeError(f"unknown version {version}")
        principal, _ = codec.decode_from(DefaultPrincipalData, memoryview(raw), 2, version)
    except DecodeError as e:
        message = f"The client's principal in the envelope cannot be read: {e}"
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, message) from None
    text = f"{principal.type}:{principal.name}"
    return TokenPrincipal(text) if principal.token_authenticated else text


def _host(address: bytes) -> str:
    if len(address) == IPV4_SIZE:
        return ".".join(map(str, address))
    if len(address) != IPV6_SIZE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The client's address in the envelope has {len(address)} bytes.")
    return ":".join(address[at : at + 2].hex() for at in range(0, len(address), 2))
