"""The broker's way to the active controller, shared by forwarding, registration, producer ids and topic creation.

In a combined node the channel leads to the controller in the same process, through the same requests as over the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from kraft_node.base.errors import KafkaError
    from kraft_node.base.request import RequestContext

Answer: TypeAlias = "Any | KafkaError | OSError"
"""A response message, or why there is none."""


class ControllerLink(Protocol):
    """What `server.channel` offers towards the controller."""

    def send(
        self,
        request: Any,
        version: int | None,
        done: Callable[[Answer], None],
        timeout_ms: int,
        *,
        on_behalf_of: RequestContext | None = None,
    ) -> None:
        """Send `request` in `version` (None: the newest both sides have); `done` gets the answer or the failure.

        `on_behalf_of`: a client's request that is handed on; the controller is to see that client's principal.
        """
