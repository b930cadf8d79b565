"""The interface of a log directory to what waits for its disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kraft_node.base.env import Env
    from kraft_node.base.turns import Turns
    from kraft_protocol.errors import KafkaError


class WaitingDir(Protocol):
    """What a wait needs of a log directory. `log_dir.LogDir` implements it."""

    env: Env
    path: str
    turns: Turns

    @property
    def failed(self) -> Exception | None:
        """Why the directory is offline; None while it works."""
        ...

    def fail(self, error: BaseException) -> KafkaError:
        """Take the directory offline, unless only descriptors are short. Returns the error for the caller."""
        ...
