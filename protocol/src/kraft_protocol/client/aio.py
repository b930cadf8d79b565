"""The driver on asyncio: connections to the nodes of a cluster, one request at a time on each.

The caller names the node that gets the request. The driver does not retry: a request that is not answered in time
fails, its connection is closed, and the next request connects again.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any, Final, NamedTuple

from kraft_protocol.client.errors import ClientError
from kraft_protocol.client.security import NO_SECURITY, ClientSecurity
from kraft_protocol.client.session import Session, Software, Versions, frame_length
from kraft_protocol.wire.api import name_of
from kraft_protocol.wire.errors import EncodeError
from kraft_protocol.wire.frames import LENGTH_SIZE

ANSWER_S: Final = 3.0
"""The default time-out in seconds. An idle node answers in a millisecond; a longer wait would make views too old."""


class Address(NamedTuple):
    """The host and port of a node's listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class UnreachableError(Exception):
    """A node did not answer: no connection, a broken connection, a time-out, or an unusable answer."""


class _Connection:
    """The connection to an address, opened for a request and opened again for the request after a failure.

    Requests take turns. `close` is final: requests that wait for their turn fail instead of connecting again.
    """

    __slots__ = (
        "_is_closed",
        "_lock",
        "_reader",
        "_renews_s",
        "_security",
        "_session",
        "_software",
        "_versions",
        "_writer",
        "address",
    )

    def __init__(
        self, address: Address, software: Software, versions: Versions | None, security: ClientSecurity
    ) -> None:
        self.address = address
        self._software, self._versions, self._security = software, versions, security
        self._renews_s: float | None = None
        self._lock = asyncio.Lock()
        self._is_closed = False
        self._session: Session | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def request(self, request: Any) -> Any:
        async with self._lock:
            try:
                session = await self._ready()
                return session.response(await self._exchange(session.request(request)))
            except BaseException:
                self._drop()
                raise

    async def _ready(self) -> Session:
        """The session of an open connection."""
        if self._session is None or self._reader is None or self._reader.at_eof():
            self._drop()
            self._check_open()
            tls = self._security.tls
            context = None if tls is None else tls.client_context
            name = None if tls is None else self._security.name_of(self.address.host)
            self._reader, self._writer = await asyncio.open_connection(*self.address, ssl=context, server_hostname=name)
            session = Session(self._software, self._versions, self._security.new_login(self.address.host))
            await self._introduce(session)
            self._session = session
        elif self._renews_s is not None and time.monotonic() >= self._renews_s:
            login = self._security.new_login(self.address.host)
            assert login is not None, "law: only a login has a session's end"
            self._session.authenticate_again(login)
            await self._introduce(self._session)
        return self._session

    async def _introduce(self, session: Session) -> None:
        """Negotiate versions and authenticate."""
        while not session.is_ready:
            frame = await self._exchange(session.hello())
            if session.is_slow:
                await asyncio.to_thread(session.welcome, frame)
            else:
                session.welcome(frame)
        after_ms = session.renews_after_ms
        self._renews_s = time.monotonic() + after_ms / 1000 if after_ms else None

    async def _exchange(self, frame: bytes) -> bytes:
        self._check_open()
        assert self._reader is not None and self._writer is not None, "a connection is open"
        self._writer.write(frame)
        return await self._reader.readexactly(frame_length(await self._reader.readexactly(LENGTH_SIZE)))

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectionAbortedError("the client closed the connection")

    def close(self) -> None:
        self._is_closed = True
        self._drop()

    def _drop(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = self._session = None


class Client:
    """A client of one cluster. Use it in `async with`, or `close` it."""

    def __init__(
        self,
        software: Software,
        versions: Versions | None = None,
        timeout_s: float = ANSWER_S,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        """`versions`: the lowest and highest version of each API that the client uses; None: all of the schemas."""
        self._software, self._versions, self._security = software, versions, security
        self._timeout_s = timeout_s
        self._connections: dict[Address, _Connection] = {}

    async def request(self, address: Address, request: Any) -> Any:
        """Send a request, a message of `wire.messages`, and return its response.

        Raises UnreachableError. The caller must check the error codes inside the response.
        """
        connection = self._connections.get(address)
        if connection is None:
            connection = _Connection(address, self._software, self._versions, self._security)
            self._connections[address] = connection
        try:
            return await asyncio.wait_for(connection.request(request), self._timeout_s)
        except (OSError, EOFError, TimeoutError, ClientError, EncodeError) as error:
            reason = str(error) or f"no answer in {self._timeout_s:g} s"
            raise UnreachableError(f"{address}: {name_of(request.SCHEMA.api_key)}: {reason}") from error

    def forget(self, address: Address) -> None:
        """Close the connection to an address. Its requests fail."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def keep(self, addresses: set[Address]) -> None:
        """Close all connections except the connections to `addresses`."""
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
