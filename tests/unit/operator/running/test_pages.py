"""Pages of nodes and drivers: an answer that arrives in pieces, on IPv6, or that is not HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest

from kraft_local.probe import not_ready
from kraft_operator.observe.status import node_status
from kraft_operator.pipelines import reconcile
from kraft_protocol.client.aio import Address, UnreachableError

T = TypeVar("T")
HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"
STATUS = b'{"voters": [1, 2], "configRevision": "%s"}' % (b"x" * 2000)


def asked(pieces: Sequence[bytes], ask: Callable[[Address], Awaitable[T]], host: str = "127.0.0.1") -> T:
    """The result of `ask` with a server that sends one piece after another."""

    tasks = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.02)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def main() -> T:
        server = await asyncio.start_server(serve, host, 0)
        async with server:
            result = await ask(Address(host, server.sockets[0].getsockname()[1]))
            await asyncio.gather(*filter(None, tasks))
            return result

    return asyncio.run(main())


@pytest.fixture
def of_driver(monkeypatch: pytest.MonkeyPatch) -> Callable[[Address], Awaitable[object]]:
    def ask(address: Address) -> Awaitable[object]:
        monkeypatch.setattr(reconcile, "HTTP_PORT", address.port)
        return reconcile.driver_status(address.host)

    return ask


def test_a_drivers_status_is_read_to_its_end(of_driver: Callable[[Address], Awaitable[object]]) -> None:
    """A status of many tables arrives in several segments, and the first alone is not JSON."""
    assert asked([HEAD, b'{"lag": [1, ', b'2], "rows": 7}'], of_driver) == {"lag": [1, 2], "rows": 7}


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_a_driver_is_reached_by_an_ipv6_address(of_driver: Callable[[Address], Awaitable[object]]) -> None:
    try:
        answer = asked([HEAD, b'{"rows": 7}'], of_driver, "::1")
    except OSError:
        pytest.skip("needs IPv6")
    assert answer == {"rows": 7}


@pytest.mark.parametrize("answer", [b"", b"nonsense", HEAD, HEAD + b"[1]", HEAD.replace(b"200", b"503") + b"{}"])
def test_a_driver_without_a_status_has_none(answer: bytes, of_driver: Callable[[Address], Awaitable[object]]) -> None:
    assert asked([answer], of_driver) is None


def test_the_reason_of_a_node_that_is_not_ready_is_read_to_its_end() -> None:
    head = HEAD.replace(b"200 OK", b"503 Service Unavailable")
    assert asked([head, b"the log ", b"is loading\n"], not_ready) == "the log is loading"
    assert asked([HEAD, b"ok\n"], not_ready) is None
    assert asked([b"nonsense"], not_ready) == "is not ready"


def test_a_nodes_status_is_read_to_its_end() -> None:
    answer = asked([HEAD, STATUS[:10], STATUS[10:]], node_status)
    assert answer is not None
    assert answer.voters == (1, 2)


@pytest.mark.parametrize("answer", [b"", b"nonsense", HEAD, HEAD + b"[]", HEAD.replace(b"200", b"503") + STATUS])
def test_a_node_without_a_status_is_unreachable(answer: bytes) -> None:
    with pytest.raises(UnreachableError, match="/status"):
        asked([answer], node_status)
