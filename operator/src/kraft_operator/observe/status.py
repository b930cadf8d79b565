"""What a node's process says of itself (`/status`): which file it has read, how many topics there are."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final, NamedTuple

from kraft_operator.kafka.client import Address, UnreachableError

ANSWER_S: Final = 2.0
BYTES_MAX: Final = 64 * 1024


class NodeStatus(NamedTuple):
    """One answer."""

    voters: tuple[int, ...]
    """Of the configuration that it has read; empty for a dynamic quorum."""
    revision: str
    """Of that configuration; empty where its author gave none."""
    topics: int | None
    """All topics there are, whoever may see them; None before there is metadata."""


async def node_status(address: Address) -> NodeStatus | None:
    """None for a node of a version that has no `/status`. Raises UnreachableError."""
    try:
        status, body = await asyncio.wait_for(_ask(address), ANSWER_S)
        if status == 404:
            return None
        if status != 200:
            raise UnreachableError(f"{address}: /status: answer {status}")
        return parsed(json.loads(body))
    except (OSError, EOFError, TimeoutError, ValueError, KeyError, TypeError) as error:
        reason = str(error) or f"no answer in {ANSWER_S:g} s"
        raise UnreachableError(f"{address}: /status: {reason}") from error


def parsed(found: dict[str, Any]) -> NodeStatus:
    """Raises KeyError or TypeError where the answer is no node's."""
    return NodeStatus(tuple(found["voters"]), found["configRevision"], found.get("topics"))


async def _ask(address: Address) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(f"GET /status HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        data = b""
        while len(data) < BYTES_MAX and (chunk := await reader.read(BYTES_MAX)):
            data += chunk
        head, _, body = data.partition(b"\r\n\r\n")
        words = head.split(b" ", 2)
        return int(words[1]) if len(words) > 1 else 0, body
    finally:
        writer.transport.abort()
