"""One connection without I/O: negotiates versions, makes requests, and matches responses with them.

A driver sends `hello()` and passes the response to `welcome()`, until `is_ready`. These exchanges negotiate versions
and authenticate. Afterwards it sends what `request()` returns, and passes each received frame to `response()`. Kafka
answers the requests of a connection in their order.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from kraft_protocol.buffers import Buffer
from kraft_protocol.client.errors import ProtocolError, VersionError, code_text
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.api import API, ApiKey, name_of
from kraft_protocol.wire.errors import DecodeError
from kraft_protocol.wire.frames import LENGTH_SIZE, decode_response, encode_request
from kraft_protocol.wire.messages import ApiVersionsRequest

RESPONSE_BYTES_MAX: Final = 0x15000000 - 1
"""The largest accepted response: 336 MiB. As a length, an alert of TLS (0x15) or a text is greater."""
_LENGTH: Final = struct.Struct(">i")
_ERROR: Final = struct.Struct(">ih")

AGAIN_LEAST_MS: Final = 1_100
"""Brokers refuse to authenticate a connection again within a second."""
_LOGIN: Final = frozenset({int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)})
"""Requests of a login, which the client's caller does not know."""

Versions = Mapping[int, tuple[int, int]]
"""Lowest and highest version by API key."""


class Software(NamedTuple):
    """The name and version that a client sends to brokers (KIP-511), and the client id of its requests."""

    client_id: str
    name: str
    version: str


def frame_length(data: Buffer, position: int = 0, most: int = RESPONSE_BYTES_MAX) -> int:
    """The length of the response that begins at `position` with its length. Raises ProtocolError, also above `most`."""
    length = int(_LENGTH.unpack_from(data, position)[0])
    if not LENGTH_SIZE <= length <= most:
        raise ProtocolError(f"does not speak Kafka's protocol, or needs TLS: answer of {length} bytes")
    return length


class Login(Protocol):
    """The client's side of SASL on one connection, without I/O."""

    @property
    def is_done(self) -> bool:
        """Whether the broker has authenticated the client."""

    @property
    def is_slow(self) -> bool:
        """Whether `answered` may compute or wait for long: drivers on an event loop must call `welcome` in a thread."""

    @property
    def lifetime_ms(self) -> int:
        """When the client must authenticate again, at the latest (KIP-368); 0: never."""

    def request(self) -> Any:
        """The next request: SaslHandshakeRequest, then SaslAuthenticateRequests."""

    def answered(self, response: Any) -> None:
        """Process the response to the last request. Raises ClientError, OSError."""


class Session:
    """The protocol's state of one connection."""

    __slots__ = ("_hello", "_login", "_next_id", "_sent", "_software", "_wanted", "is_ready", "served")

    def __init__(self, software: Software, wanted: Versions | None = None, login: Login | None = None) -> None:
        """`wanted`: the versions that the client may use, for every API that it uses. None: all of the schemas.

        `login` authenticates the client; None: the listener has no SASL.
        """
        self.served: Versions = {}
        """The versions that the broker serves."""
        self.is_ready = False
        self._software, self._wanted, self._login = software, wanted, login
        self._sent: deque[tuple[int, int, int]] = deque()
        self._next_id = 1
        self._hello = API[ApiKey.API_VERSIONS].max_version

    @property
    def pending(self) -> int:
        """The number of requests without a response."""
        return len(self._sent)

    @property
    def is_slow(self) -> bool:
        """Whether `welcome` may compute or wait for long: a driver on an event loop must call it in a thread."""
        return self._login is not None and bool(self.served) and self._login.is_slow

    @property
    def renews_after_ms(self) -> int:
        """When to `authenticate_again`, in milliseconds after `is_ready`; 0: never.

        Before the end of the session, unless it is so short that the broker would refuse the attempt as too early.
        """
        lifetime_ms = 0 if self._login is None else self._login.lifetime_ms
        return max(lifetime_ms * 9 // 10, AGAIN_LEAST_MS) if lifetime_ms else 0

    def authenticate_again(self, login: Login) -> None:
        """Begin another authentication of the connection: exchange `hello` and `welcome` until `is_ready`."""
        assert not self._sent, "law: no request is under way while a client authenticates again"
        self._login = login
        self.is_ready = False

    def hello(self) -> bytes:
        """The frame of the next request before `is_ready`. The first one requests the broker's versions."""
        if self.served and self._login is not None:
            return self.request(self._login.request())
        request = ApiVersionsRequest(
            client_software_name=self._software.name, client_software_version=self._software.version
        )
        return self._frame(request, self._hello)

    def welcome(self, frame: Buffer) -> None:
        """Process the response to `hello`. If `is_ready` is false afterwards, send another `hello`.

        A broker that does not know our version answers in version 0 (KIP-511). Raises ProtocolError.
        """
        number, key, version = self._sent.popleft()
        if (
            key == ApiKey.API_VERSIONS
            and len(frame) >= _ERROR.size
            and _ERROR.unpack_from(frame)[1] == ErrorCode.UNSUPPORTED_VERSION
        ):
            version = 0
        response = self._decoded(frame, number, key, version)
        if key != ApiKey.API_VERSIONS:
            assert self._login is not None, "law: only a login sends other requests before is_ready"
            self._login.answered(response)
            self.is_ready = self._login.is_done
            return
        served = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and self._hello > 0:
            self._hello = max(0, min(self._hello - 1, served.get(key, (0, 0))[1]))
            return
        if response.error_code:
            raise ProtocolError(f"answers ApiVersions with {code_text(response.error_code)}")
        self.served = served
        self.is_ready = self._login is None

    def require(self) -> None:
        """Raise VersionError if the broker lacks one of the wanted APIs."""
        for key in self._wanted or ():
            self.version(key)

    def version(self, key: int, pinned: int | None = None) -> int:
        """The highest version of an API that both sides may use; `pinned` allows one only. Raises VersionError."""
        if self._wanted is not None and key not in _LOGIN:
            least, most = self._wanted[key]
        else:
            least, most = API[key].min_version, API[key].max_version
        if pinned is not None:
            least, most = max(least, pinned), min(most, pinned)
        low, high = self.served.get(key, (0, -1))
        version = min(most, high)
        if version < max(least, low):
            there = f"{low} to {high}" if key in self.served else "none"
            wanted = f"{least}" if least >= most else f"{least} to {most}"
            raise VersionError(f"serves no {name_of(key)} version {wanted} ({there})")
        return version

    def request(self, message: Any, version: int | None = None) -> bytes:
        """The frame of a request in `version`, or in the negotiated version. Raises VersionError, and EncodeError."""
        return self._frame(message, self.version(message.SCHEMA.api_key, version))

    def response(self, frame: Buffer) -> Any:
        """The response to the oldest request. Its records are views of `frame`. Raises ProtocolError."""
        if not self._sent:
            raise ProtocolError("answered without a request")
        return self._decoded(frame, *self._sent.popleft())

    def _frame(self, message: Any, version: int) -> bytes:
        key, number = message.SCHEMA.api_key, self._next_id
        parts = encode_request(number, key, version, self._software.client_id, message)
        self._next_id = (number + 1) & 0x7FFFFFFF
        self._sent.append((number, key, version))
        return b"".join(parts)  # type: ignore[arg-type]  # requests hold no slices of files

    @staticmethod
    def _decoded(frame: Buffer, number: int, key: int, version: int) -> Any:
        try:
            answered, message = decode_response(frame, key, version)
        except DecodeError as error:
            raise ProtocolError(f"answers {name_of(key)} with a malformed response: {error}") from error
        if answered != number:
            raise ProtocolError(f"answered request {answered}, not the oldest, {number}")
        return message
