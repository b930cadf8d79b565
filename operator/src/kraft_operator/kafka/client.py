"""Connections to the nodes of a cluster: one request at a time, closed at the first error.

If a node does not answer, the request fails after `timeout_s` and the connection is closed. The next request connects
again.
"""

from __future__ import annotations

import asyncio
import struct
from types import TracebackType
from typing import Any, Final, NamedTuple

from kraft_operator.kafka.codec import MESSAGE_BYTES_MAX, ProtocolError
from kraft_operator.kafka.schemas import API_VERSIONS, Api

CLIENT_ID: Final = "kraft-operator"
ANSWER_S: Final = 3.0
"""The default timeout in seconds. An idle node answers in a millisecond; a longer wait would make views too old."""
LASTING: Final = frozenset({40, 42, 44, 96})
"""INVALID_CONFIG, INVALID_REQUEST (for wrong values of brokers), POLICY_VIOLATION, FEATURE_UPDATE_FAILED."""
_HEAD: Final = struct.Struct(">hhih")


class Address(NamedTuple):
    """The host and port of a node's listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class UnreachableError(Exception):
    """A node did not answer: no connection, a broken connection, a timeout, or an unusable answer."""


class RefusedError(Exception):
    """The cluster answered with an error. `code` is Kafka's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def lasting(self) -> bool:
        """Whether the request itself is wrong, so that a retry cannot help."""
        return self.code in LASTING


class _Connection:
    __slots__ = ("_lock", "_number", "_reader", "_writer", "address")

    def __init__(self, address: Address) -> None:
        self.address = address
        self._lock = asyncio.Lock()
        self._number = 0
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, api: Api, body: bytes) -> bytes:
        async with self._lock:
            if self._writer is None or self._reader is None or self._reader.at_eof():
                self.close()
                self._reader, self._writer = await asyncio.open_connection(*self.address)
            self._number += 1
            name = CLIENT_ID.encode()
            head = _HEAD.pack(api.key, api.version, self._number, len(name)) + name + b"\0"
            self._writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
            return await self._answer(self._reader, api)

    async def _answer(self, reader: asyncio.StreamReader, api: Api) -> bytes:
        size, number = struct.unpack(">ii", await reader.readexactly(8))
        if number != self._number or not 4 <= size <= MESSAGE_BYTES_MAX:
            raise ProtocolError(f"{self.address} answers with {size} bytes to request {number}: no Kafka, it seems")
        data = await reader.readexactly(size - 4)
        # The response to ApiVersions has no tags in its header, so that clients of any version can read it (KIP-511).
        if api is API_VERSIONS:
            return data
        if data[:1] != b"\0":
            raise ProtocolError(f"{self.address} answers {api.name} with unknown tags")
        return data[1:]

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None


class Client:
    """A client of one cluster. Use it in `async with`, or `close` it."""

    def __init__(self, timeout_s: float = ANSWER_S) -> None:
        self._timeout_s = timeout_s
        self._connections: dict[Address, _Connection] = {}

    async def ask(self, address: Address, api: Api, **fields: Any) -> dict[str, Any]:
        """Send a request and return the response. `fields` are the fields of the request.

        Raises UnreachableError. The caller must check the error codes inside the response.
        """
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = _Connection(address)
        body = api.request.encode(fields)
        try:
            data = await asyncio.wait_for(connection.ask(api, body), self._timeout_s)
            return api.response.decode(data)
        except (OSError, EOFError, TimeoutError, ProtocolError) as error:
            self.forget(address)
            reason = str(error) or f"no answer in {self._timeout_s:g} s"
            raise UnreachableError(f"{address}: {api.name}: {reason}") from error
        except asyncio.CancelledError:
            self.forget(address)
            raise

    def forget(self, address: Address) -> None:
        """Close the connection to an address."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def keep(self, addresses: set[Address]) -> None:
        """Close all connections except those to `addresses`."""
        for address in self._connections.keys() - addresses:
            self.forget(address)

    def close(self) -> None:
        """Close all connections."""
        self.keep(set())

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
