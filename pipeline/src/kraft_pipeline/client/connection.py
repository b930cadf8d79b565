"""One blocking connection to a broker. Requests can be pipelined; responses arrive in the same order."""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Mapping
from typing import Final

from kraft_pipeline.client import messages as m
from kraft_pipeline.client.buffers import Reader, Writer
from kraft_pipeline.client.errors import NAMES, ClientError

RESPONSE_BYTES_MAX: Final = 1 << 30
"""Maximum bytes of a response. A greater length means that the peer is not a Kafka broker."""
_LENGTH: Final = struct.Struct(">i")


class Connection:
    """Methods raise OSError (also if the connection closes within a response), and ClientError on protocol errors."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        connect_s: float,
        request_s: float,
        versions: Mapping[int, int] = m.VERSIONS,
    ) -> None:
        """`versions`: the version of each request type; the broker must serve all of them. Timeouts are in seconds."""
        self.name = f"{host}:{port}"
        self._client_id, self._versions = client_id, versions
        self._sent: deque[tuple[int, int]] = deque()
        self._next_id = 0
        self._socket = socket.create_connection((host, port), timeout=connect_s)
        try:
            self._socket.settimeout(request_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._check_versions()
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close the socket and abandon requests without a response."""
        self._socket.close()

    @property
    def waiting(self) -> int:
        """Number of requests whose responses have not been received."""
        return len(self._sent)

    def ask(self, api: int, body: Writer) -> Reader:
        """Send a request and return its response; no other request may be in flight."""
        assert not self._sent, f"{self.name}: answers come in the order of the requests"
        self.send(api, body)
        return self.receive()

    def send(self, api: int, body: Writer) -> None:
        """Send a request; `receive` returns the responses in the order of the requests."""
        client = self._client_id.encode()
        header = struct.pack(f">hhih{len(client)}sb", api, self._versions[api], self._next_id, len(client), client, 0)
        self._sent.append((self._next_id, api))
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        self._socket.sendall(_LENGTH.pack(len(header) + len(body.out)) + header + body.out)

    def receive(self) -> Reader:
        """Return the body of the response to the oldest request in flight."""
        (length,) = _LENGTH.unpack(self._read(4))
        if not 4 <= length <= RESPONSE_BYTES_MAX:
            raise ClientError(f"{self.name} does not speak Kafka's protocol, or needs TLS: answer of {length} bytes")
        reader = Reader(memoryview(self._read(length)))
        wanted, api = self._sent.popleft()
        if reader.i32() != wanted:
            raise ClientError(f"{self.name} answered another request than the oldest")
        if api != m.API_VERSIONS:  # its header has no tagged fields, because a broker may not know its version
            reader.tags()
        return reader

    def _read(self, length: int) -> bytearray:
        data = bytearray(length)
        view = memoryview(data)
        while view:
            got = self._socket.recv_into(view)
            if not got:
                raise ConnectionResetError(f"{self.name} closed the connection")
            view = view[got:]
        return data

    def _check_versions(self) -> None:
        error, served = m.read_api_versions(self.ask(m.API_VERSIONS, m.api_versions()))
        if error:
            raise ClientError(f"{self.name} answers ApiVersions with {NAMES.get(error, error)}")
        for api, version in self._versions.items():
            least, most = served.get(api, (0, -1))
            if not least <= version <= most:
                there = f"{least} to {most}" if api in served else "none"
                raise ClientError(
                    f"{self.name} serves no {m.API_NAMES.get(api, f'request {api}')} version {version} ({there}): "
                    "Apache Kafka 3.1 or later is needed"
                )
