"""The operator's requests in their versions, and its connections."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraft_operator.protocol import VERSIONS, new_client
from kraft_protocol.client.aio import Address, Client, UnreachableError
from kraft_protocol.wire import messages
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.codec import encode


def test_the_versions_of_all_requests_are_flexible_and_served() -> None:
    for key, version in VERSIONS.items():
        assert max(API[key].min_version, API[key].flexible_from) <= version <= API[key].max_version, key


# Connections

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def _with_server(answer: Answer, ask: Callable[[Client, Address], Awaitable[None]], timeout_s: float = 30) -> None:
    async def main() -> None:
        tasks: set[asyncio.Task[None]] = set()

        async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(asyncio.current_task())  # type: ignore[arg-type]
            try:
                await answer(reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(one, "127.0.0.1", 0)
        try:
            async with new_client(timeout_s) as client:
                await ask(client, Address("127.0.0.1", server.sockets[0].getsockname()[1]))
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


async def _request(reader: asyncio.StreamReader) -> int:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    body = await reader.readexactly(size)
    return int(struct.unpack_from(">i", body, 4)[0])


async def _greeting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer ApiVersions, the first request of a connection."""
    served = [messages.ApiVersionsResponse.ApiVersion(key, version, version) for key, version in VERSIONS.items()]
    version = VERSIONS[ApiKey.API_VERSIONS]
    body = struct.pack(">i", await _request(reader)) + encode(messages.ApiVersionsResponse(api_keys=served), version)
    writer.write(struct.pack(">i", len(body)) + body)


def _response(number: int) -> bytes:
    body = struct.pack(">i", number) + b"\0" + bytes(encode(messages.UnregisterBrokerResponse(), 0))
    return struct.pack(">i", len(body)) + body


def test_concurrent_requests_share_one_connection() -> None:
    connections = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        await _greeting(reader, writer)
        while True:
            writer.write(_response(await _request(reader)))

    async def ask(client: Client, address: Address) -> None:
        answers = await asyncio.gather(
            *(client.request(address, messages.UnregisterBrokerRequest(i)) for i in range(5))
        )
        assert [one.error_code for one in answers] == [0] * 5

    _with_server(answer, ask)
    assert len(connections) == 1


def test_a_request_times_out_and_the_next_reconnects() -> None:
    connections = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        await _greeting(reader, writer)
        number = await _request(reader)
        if len(connections) == 1:
            await asyncio.Event().wait()
        writer.write(_response(number))
        await writer.drain()

    async def ask(client: Client, address: Address) -> None:
        with pytest.raises(UnreachableError, match=r"no answer in 0\.3 s"):
            await client.request(address, messages.UnregisterBrokerRequest(1))
        client._timeout_s = 30
        assert (await client.request(address, messages.UnregisterBrokerRequest(1))).error_code == 0

    _with_server(answer, ask, timeout_s=0.3)


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad", b"", struct.pack(">ii", 5, 77) + b"\0"])
def test_a_server_that_is_not_kafka_is_unreachable(said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader)
        writer.write(said)
        await writer.drain()

    async def ask(client: Client, address: Address) -> None:
        with pytest.raises(UnreachableError):
            await client.request(address, messages.UnregisterBrokerRequest(1))

    _with_server(answer, ask)


def test_a_request_that_waited_for_a_failed_connection_leaves_no_socket_open() -> None:
    connections = []
    closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        first = len(connections) == 1
        await _greeting(reader, writer)
        number = await _request(reader)
        if first:
            writer.write(b"HTTP")
            await asyncio.Event().wait()
        writer.write(_response(number))
        writer.write(_response(await _request(reader)))
        await reader.read()
        closed.set()

    async def ask(client: Client, address: Address) -> None:
        failed, waited = await asyncio.gather(
            *(client.request(address, messages.UnregisterBrokerRequest(i)) for i in range(2)),
            return_exceptions=True,
        )
        assert isinstance(failed, UnreachableError)
        assert not isinstance(waited, BaseException), waited
        assert (await client.request(address, messages.UnregisterBrokerRequest(2))).error_code == 0
        client.close()
        await asyncio.wait_for(closed.wait(), 10)

    _with_server(answer, ask)
    assert len(connections) == 2


def test_a_request_does_not_connect_again_after_the_client_forgot_its_address() -> None:
    connections = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        await _greeting(reader, writer)
        await _request(reader)
        arrived.set()
        await reader.read()

    async def ask(client: Client, address: Address) -> None:
        asked = [asyncio.create_task(client.request(address, messages.UnregisterBrokerRequest(i))) for i in range(2)]
        await arrived.wait()
        client.close()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in answers] == [UnreachableError] * 2

    arrived = asyncio.Event()
    _with_server(answer, ask)
    assert len(connections) == 1


def test_a_connection_that_opens_after_the_client_was_closed_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, go_on, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()
    open_connection = asyncio.open_connection

    async def slowly(*where: str | int, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        both = await open_connection(*where, **options)  # type: ignore[arg-type]
        opened.set()
        await go_on.wait()
        return both

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read()
        closed.set()

    async def ask(client: Client, address: Address) -> None:
        asked = asyncio.create_task(client.request(address, messages.UnregisterBrokerRequest(1)))
        await opened.wait()
        client.close()
        go_on.set()
        with pytest.raises(UnreachableError):
            await asked
        await asyncio.wait_for(closed.wait(), 10)

    monkeypatch.setattr(asyncio, "open_connection", slowly)
    _with_server(answer, ask)


def test_a_cancelled_request_leaves_the_connection_to_others() -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _greeting(reader, writer)
        number = await _request(reader)
        arrived.set()
        await go_on.wait()
        writer.write(_response(number))
        await reader.read()

    async def ask(client: Client, address: Address) -> None:
        first = asyncio.create_task(client.request(address, messages.UnregisterBrokerRequest(1)))
        await arrived.wait()
        second = asyncio.create_task(client.request(address, messages.UnregisterBrokerRequest(2)))
        for _ in range(5):
            await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        go_on.set()
        assert (await first).error_code == 0

    _with_server(answer, ask)
