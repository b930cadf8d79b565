"""The fetching side of a fetch session (KIP-227), without I/O: the partitions that the leader's session holds.

The first request names every partition and opens a session. Later requests name only changed partitions and partitions
to forget. A leader without room for a session responds with session id 0; then every request is full.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
"""The epoch of a request that neither has nor opens a session, or that closes its session."""
EPOCH_MAX: Final = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """The epoch of the request after one with `epoch`, which is not FINAL_EPOCH."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


class ClientFetchSession(Generic[Key]):
    """The session fields of the next request, and the partitions in the leader's session."""

    __slots__ = ("epoch", "id", "known")

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.known: set[Key] = set()
        """Partitions in the leader's session."""

    @property
    def is_full(self) -> bool:
        """Whether the next request must name every partition."""
        return self.epoch == INITIAL_EPOCH

    def answered(self, session_id: int) -> None:
        """Note a successful response with this session id."""
        if self.is_full:
            self.id = session_id
            self.epoch = INITIAL_EPOCH if session_id == NO_SESSION else next_epoch(INITIAL_EPOCH)
        elif session_id == NO_SESSION:
            self.restart()
        else:
            self.epoch = next_epoch(self.epoch)

    def restart(self) -> None:
        """Make the next request a full request; it names the old session, so that the leader can drop it."""
        self.epoch = INITIAL_EPOCH
        self.known.clear()

    def forgotten_by_leader(self) -> None:
        """Note that the leader no longer has the session."""
        self.id = NO_SESSION
        self.restart()
