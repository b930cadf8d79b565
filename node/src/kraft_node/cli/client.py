"""A blocking client for command lines: one connection, one request at a time, PLAINTEXT only."""

from __future__ import annotations

import socket
import struct
from typing import Any, Final

from kraft_node.base.config.listeners import parse_host_port
from kraft_node.base.version import VERSION
from kraft_node.cli.common import ToolError, read_text
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.frames import decode_response, encode_request
from kraft_protocol.wire.messages import ApiVersionsRequest

TIMEOUT_S: Final = 30.0
RESPONSE_BYTES_MAX: Final = 100 * 1024 * 1024
"""The same as a broker's limit for requests. A larger length means that the other side uses another protocol."""


class Client:
    """A connection to one node. Raises ToolError if the node cannot be reached or answers wrongly."""

    def __init__(self, host: str, port: int, timeout_s: float = TIMEOUT_S) -> None:
        self.address = f"{host}:{port}"
        self._next_id = 0
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as e:
            raise ToolError(f"cannot connect to {self.address}: {e}") from None
        # A request is sent in parts: with Nagle's algorithm the last part would wait for the acknowledgement of the
        # first.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.versions: dict[int, tuple[int, int]] = {}
        try:
            self.versions = self._ask_versions()
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name="kraftcluster", client_software_version=VERSION)
        response = self._exchange(ApiKey.API_VERSIONS, 3, request)
        if response.error_code == 35:  # older than ApiVersions 3
            response = self._exchange(ApiKey.API_VERSIONS, 0, request)
        return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def ask(self, key: ApiKey, request: Any) -> Any:
        """The response to `request`, in the newest version that both sides support. Raises ToolError."""
        spec = API[key]
        low, high = self.versions.get(key, (0, -1))
        version = min(high, spec.max_version)
        if version < max(low, spec.min_version):
            raise ToolError(f"{self.address} and this program have no version of {key.name} in common")
        return self._exchange(key, version, request)

    def _exchange(self, key: ApiKey, version: int, request: Any) -> Any:
        self._next_id += 1
        try:
            for part in encode_request(self._next_id, key, version, "kraftcluster-cli", request):
                assert not hasattr(part, "read"), "requests of command lines hold no file slices"
                self._socket.sendall(part)
            frame = self._receive(struct.unpack(">i", self._receive(4))[0])
        except TimeoutError:
            raise ToolError(f"{self.address} has not answered {key.name} in time") from None
        except OSError as e:
            raise ToolError(f"{self.address}: {e}") from None
        correlation_id, response = decode_response(frame, key, 0 if self._falls_back(key, version, frame) else version)
        if correlation_id != self._next_id:
            raise ToolError(f"{self.address} answered request {correlation_id}, not {self._next_id}")
        return response

    @staticmethod
    def _falls_back(key: ApiKey, version: int, frame: bytes) -> bool:
        """Whether this is the version-0 answer of a node that does not know our ApiVersions version (KIP-511)."""
        return key == ApiKey.API_VERSIONS and version > 0 and frame[4:6] == b"\x00\x23"

    def _receive(self, size: int) -> bytes:
        if not 0 <= size <= RESPONSE_BYTES_MAX:
            raise ToolError(f"{self.address} does not use Kafka's protocol: it announces a response of {size} bytes")
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ToolError(f"{self.address} has closed the connection")
            data += part
        return bytes(data)


def connect(servers: str, properties: str | None = None) -> Client:
    """A connection to the first reachable server of `servers` (`host:port,…`).

    `properties` names a file of client properties; only PLAINTEXT is supported. Raises ToolError.
    """
    if properties is not None:
        _check_properties(properties)
    failure = ToolError("no server is given")
    for text in servers.split(","):
        host_port = parse_host_port(text.strip())
        if host_port is None:
            raise ToolError(f"{text.strip()!r} does not have the form host:port")
        try:
            return Client(*host_port)
        except ToolError as e:
            failure = e
    raise failure


def _check_properties(path: str) -> None:
    from kraft_node.base.config import parse_properties

    protocol = parse_properties(read_text(path)).get("security.protocol", "PLAINTEXT")
    if protocol.upper() != "PLAINTEXT":
        raise ToolError(f"{path}: security.protocol={protocol} is not supported, use PLAINTEXT")
