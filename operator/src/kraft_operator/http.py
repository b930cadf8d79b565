"""`/metrics`, `/livez` and `/readyz` of the operator. A few lines instead of a framework: it answers GET and closes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

REQUEST_BYTES_MAX: Final = 16 * 1024
REQUEST_S_MAX: Final = 5.0
TEXT: Final = "text/plain; charset=utf-8"

Answer = tuple[int, str, bytes]
Route = Callable[[], Answer]
REASONS: Final = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Unavailable"}


async def serve(routes: dict[str, Route], port: int, host: str | None = None) -> asyncio.Server:
    """Listen; `port` 0 for any."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                status, kind, body = _answer(routes, head)
                lines = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\n"
                writer.write(f"{lines}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
                await writer.drain()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(one, host, port, limit=REQUEST_BYTES_MAX)


def _answer(routes: dict[str, Route], head: bytes) -> Answer:
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3:
        return 400, TEXT, b"no request\n"
    if words[0] not in {"GET", "HEAD"}:
        return 405, TEXT, b"GET only\n"
    route = routes.get(words[1].partition("?")[0])
    return route() if route is not None else (404, TEXT, f"there are {', '.join(routes)}\n".encode())
