"""The follower's side of a fetch session (KIP-227): which partitions the leader knows that we want, and since when.

The first request names every partition and asks for a session; later ones name what has changed and what is to be
forgotten. A leader that has no room for a session says so with id 0, then every request is a full one.
"""

from __future__ import annotations

from typing import Final

from kraft_node.partition.table import PartitionKey

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
EPOCH_MAX: Final = 2**31 - 1


class FetchSession:
    """What to put into the next request's session fields, and what the leader holds by now."""

    __slots__ = ("epoch", "id", "known")

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.known: set[PartitionKey] = set()
        """The partitions that the leader has been told of and has not been told to forget."""

    @property
    def is_full(self) -> bool:
        """Whether the next request has to name every partition."""
        return self.epoch == INITIAL_EPOCH

    def answered(self, session_id: int) -> None:
        """The request has been answered under that session id."""
        if self.is_full:
            self.id = session_id
            self.epoch = INITIAL_EPOCH if session_id == NO_SESSION else 1
        elif session_id == NO_SESSION:
            self.restart()
        else:
            self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1

    def restart(self) -> None:
        """Begin again; the next request names the old session, so that the leader can drop it."""
        self.epoch = INITIAL_EPOCH
        self.known.clear()

    def forgotten_by_leader(self) -> None:
        """The leader has no such session any more."""
        self.id = NO_SESSION
        self.restart()
