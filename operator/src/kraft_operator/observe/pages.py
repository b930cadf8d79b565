"""Pages that nodes and drivers serve over HTTP, without TLS: `/status`, `/readyz`."""

from __future__ import annotations

import asyncio
from typing import Final

from kraft_protocol.client.aio import Address

PAGE_BYTES_MAX: Final = 64 * 1024


async def page(address: Address, path: str) -> tuple[int, bytes]:
    """Get a page: its status (0 if the answer is not HTTP) and its body, cut at PAGE_BYTES_MAX. Raises OSError.

    The caller limits the time.
    """
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        data = b""
        # A single read may return the first segment of an answer only.
        while len(data) < PAGE_BYTES_MAX and (piece := await reader.read(PAGE_BYTES_MAX)):
            data += piece
    finally:
        writer.transport.abort()
    head, _, body = data.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0, body
