"""The readiness of a node, from its own `/readyz`, as on Kubernetes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from kraft_operator.observe.pages import page
from kraft_protocol.client.aio import Address

ANSWER_S: Final = 1.0
"""The timeout in seconds, the same as for Kubernetes' probes."""
HTTP_OK: Final = 200


async def not_ready(address: Address) -> str | None:
    """Why a node is not ready; None if it is ready."""
    try:
        status, body = await asyncio.wait_for(page(address, "/readyz"), ANSWER_S)
    except TimeoutError:
        return f"no answer on {address} in {ANSWER_S:g} s"
    except OSError:
        return "starts"
    if status == HTTP_OK:
        return None
    return body.decode(errors="replace").strip() or "is not ready"


async def all_not_ready(nodes: Mapping[int, Address]) -> dict[int, str]:
    """The nodes that are not ready, with the reasons. All nodes get the request at the same time."""
    answers = await asyncio.gather(*(not_ready(address) for address in nodes.values()))
    return {node_id: why for node_id, why in zip(nodes, answers, strict=True) if why is not None}
