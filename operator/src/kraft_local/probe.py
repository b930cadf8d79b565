"""The readiness of a node, from its own `/readyz`, as on Kubernetes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from kraft_protocol.client.aio import Address

ANSWER_S: Final = 1.0
"""The timeout in seconds, the same as for Kubernetes' probes."""
BYTES_MAX: Final = 16 * 1024


async def not_ready(address: Address) -> str | None:
    """Why a node is not ready; None if it is ready."""
    try:
        return await asyncio.wait_for(_query(address), ANSWER_S)
    except TimeoutError:
        return f"no answer on {address} in {ANSWER_S:g} s"
    except OSError:
        return "starts"


async def _query(address: Address) -> str | None:
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(f"GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read(BYTES_MAX)).partition(b"\r\n\r\n")
        status = head.split(b" ", 2)[1:2]
        if status == [b"200"]:
            return None
        return body.decode(errors="replace").strip() or "is not ready"
    finally:
        writer.transport.abort()


async def all_not_ready(nodes: Mapping[int, Address]) -> dict[int, str]:
    """The nodes that are not ready, with the reasons. All nodes get the request at the same time."""
    answers = await asyncio.gather(*(not_ready(address) for address in nodes.values()))
    return {node_id: why for node_id, why in zip(nodes, answers, strict=True) if why is not None}
