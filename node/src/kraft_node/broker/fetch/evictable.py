"""The order in which fetch sessions make room for others.

A broker with more readers than sessions looks for a session to evict at nearly every fetch of the others. So the
sessions are kept in order: finding the least valuable session costs the same for any number of sessions.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from typing import NamedTuple


class Worth(NamedTuple):
    """The value of a session: the sessions of followers are worth more, then sessions with more partitions."""

    privileged: bool
    size: int
    session_id: int


class Evictable:
    """The sessions of a cache. A session is young until it is `protected_ms` old: only followers may replace it."""

    __slots__ = ("_born_ms", "_old", "_protected_ms", "_worth", "_young")

    def __init__(self, protected_ms: int) -> None:
        self._protected_ms = protected_ms
        self._worth: dict[int, Worth] = {}
        self._born_ms: OrderedDict[int, int] = OrderedDict()
        """When the young sessions were made, the oldest first."""
        self._young: list[Worth] = []
        self._old: list[Worth] = []

    def put(self, worth: Worth, created_ms: int) -> None:
        """Add a session that was made at `created_ms`, or change its worth."""
        session_id = worth.session_id
        before = self._worth.get(session_id)
        if before is None:
            self._born_ms[session_id] = created_ms
        else:
            self._take(before)
        self._worth[session_id] = worth
        insort(self._peers(session_id), worth)

    def remove(self, session_id: int) -> None:
        """Remove a session; allowed if it is missing."""
        worth = self._worth.pop(session_id, None)
        if worth is not None:
            self._take(worth)
            self._born_ms.pop(session_id, None)

    def least(self, now_ms: int, *, for_follower: bool) -> Worth | None:
        """The least valuable session that may be evicted; None if all are protected."""
        self._age(now_ms)
        least = self._old[0] if self._old else None
        if for_follower and self._young and not self._young[0].privileged:
            return self._young[0] if least is None else min(least, self._young[0])
        return least

    def _peers(self, session_id: int) -> list[Worth]:
        return self._young if session_id in self._born_ms else self._old

    def _take(self, worth: Worth) -> None:
        peers = self._peers(worth.session_id)
        del peers[bisect_left(peers, worth)]

    def _age(self, now_ms: int) -> None:
        """Move sessions that are no longer young."""
        while self._born_ms:
            session_id, born_ms = next(iter(self._born_ms.items()))
            if now_ms - born_ms <= self._protected_ms:
                return
            worth = self._worth[session_id]
            self._take(worth)
            del self._born_ms[session_id]
            insort(self._old, worth)
