"""The leader's state of one follower of one partition: its progress, and since when it lags.

Kafka stores the time of every fetch in every partition of the fetch. Here a fetch stores its time once per follower
(`FollowerClock`). A partition that was read to its end is not touched by later fetches. When the leader appends again,
it fixes the time until which the follower had everything (`left_behind`). This costs one step per append after a pause.
"""

from __future__ import annotations

from typing import Final, Protocol

UNKNOWN: Final = -1

HURRY_MS: Final = 2_000
"""How long the leader expects a follower to fetch a partition that it has not fetched yet."""


class Waiting(Protocol):
    """A follower's fetch that waits for records."""

    def shorten_wait(self) -> None:
        """Answer soon, so that the follower can fetch new partitions."""


class FollowerClock:
    """The state of one following broker for all partitions: its last fetch, and the partitions that it has not fetched
    yet.

    A broker that becomes leader of a partition expects its followers to fetch it. A follower with a waiting fetch of
    other partitions cannot, so that fetch is answered soon. Times are monotonic milliseconds.
    """

    __slots__ = ("expected_until_ms", "fetched_ms", "unseen", "waiting")

    def __init__(self) -> None:
        self.fetched_ms = 0
        self.expected_until_ms = 0
        self.unseen = 0
        """Partitions that this broker leads and that the follower has not fetched in their leader epoch."""
        self.waiting: list[Waiting] = []
        """The follower's waiting fetches."""

    def expect(self, now_ms: int) -> None:
        """Note one more partition that the follower must fetch."""
        self.unseen += 1
        self.expected_until_ms = now_ms + HURRY_MS
        for fetch in list(self.waiting):
            fetch.shorten_wait()

    def is_expected(self, now_ms: int) -> bool:
        """Whether the follower will soon fetch more partitions."""
        return self.unseen > 0 and now_ms < self.expected_until_ms


class FollowerState:
    """A follower according to its fetches. `end_offset` -1: it has not fetched in this leader epoch."""

    __slots__ = (
        "_fetched_ms",
        "_leader_end",
        "at_end",
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "clock",
        "end_offset",
        "start_offset",
    )

    def __init__(self, broker_id: int, clock: FollowerClock) -> None:
        self.broker_id = broker_id
        self.clock = clock
        self.broker_epoch = UNKNOWN
        """Epoch of the incarnation that fetches (KIP-903); -1 if unknown."""
        self.end_offset = UNKNOWN
        self.start_offset = UNKNOWN
        self.caught_up_ms = 0
        """The last time at which the follower was known to have all of the leader's records."""
        self.at_end = False
        """The follower has all records, and the leader has not appended since."""
        self._fetched_ms = 0
        self._leader_end = 0

    def begin(self, now_ms: int, *, in_sync: bool) -> None:
        """Start a leader epoch: members of the ISR get time to fetch."""
        self.caught_up_ms = now_ms if in_sync else -(1 << 62)
        self.clock.expect(now_ms)

    def forget(self) -> None:
        """Stop tracking: it no longer follows, or the epoch has changed."""
        if self.end_offset == UNKNOWN:
            self.clock.unseen -= 1

    def fetched(self, offset: int, start_offset: int, broker_epoch: int, leader_end: int) -> bool:
        """Note a fetch from `offset`: the follower has all earlier records. Returns False for an older incarnation."""
        if -1 < broker_epoch < self.broker_epoch:
            return False
        self.broker_epoch = max(self.broker_epoch, broker_epoch)
        if self.end_offset == UNKNOWN:
            self.clock.unseen -= 1
        now_ms = self.clock.fetched_ms
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
            self.at_end = True
        else:
            if offset >= self._leader_end:
                self.caught_up_ms = max(self.caught_up_ms, self._fetched_ms)
            self.at_end = False
        self.end_offset = offset
        self.start_offset = start_offset
        self._fetched_ms = now_ms
        self._leader_end = leader_end
        return True

    def left_behind(self) -> None:
        """Note that the leader appends: the follower had all records until its last fetch."""
        self.at_end = False
        self.caught_up_ms = max(self.caught_up_ms, self.clock.fetched_ms)
        self._fetched_ms = max(self._fetched_ms, self.clock.fetched_ms)

    def is_caught_up(self, leader_end: int, now_ms: int, lag_max_ms: int) -> bool:
        """Whether the follower has all records now, or had within `lag_max_ms` (replica.lag.time.max.ms)."""
        return self.end_offset == leader_end or now_ms - self.caught_up_ms <= lag_max_ms

    def __repr__(self) -> str:
        return f"FollowerState({self.broker_id} at {self.end_offset}, broker epoch {self.broker_epoch})"
