"""What a leader knows of one follower of one partition: how far it is, and since when it has been behind.

Kafka notes the time of every fetch in every partition that it covers. Here a fetch notes its time once a follower
(`FollowerClock`): a partition that has been read to its end is not touched by the fetches that follow. Only when the
leader appends again is the moment fixed until which the follower had everything (`left_behind`), at the cost of one
step for each append that follows a rest.
"""

from __future__ import annotations

from typing import Final, Protocol

UNKNOWN: Final = -1

HURRY_MS: Final = 2_000
"""How long a follower is expected to ask for a partition that it has not asked for yet."""


class Waiting(Protocol):
    """A follower's fetch that waits for records."""

    def hurry(self) -> None:
        """Be answered soon, so that the follower can ask for what is new."""


class FollowerClock:
    """What all partitions share that one broker follows: when it last fetched anything, and what it has yet to begin.

    A broker that begins to lead a partition expects its followers to ask for it. One whose fetch of other partitions is
    waiting cannot, so that fetch is answered soon. Times are monotonic milliseconds.
    """

    __slots__ = ("fetched_ms", "hurry_until_ms", "unseen", "waiting")

    def __init__(self) -> None:
        self.fetched_ms = 0
        self.hurry_until_ms = 0
        self.unseen = 0
        """Partitions that are led here and that the broker has not asked for in their leader epoch."""
        self.waiting: list[Waiting] = []
        """Its fetches that wait."""

    def expect(self, now_ms: int) -> None:
        """One more partition to ask for."""
        self.unseen += 1
        self.hurry_until_ms = now_ms + HURRY_MS
        for fetch in list(self.waiting):
            fetch.hurry()

    def is_expected(self, now_ms: int) -> bool:
        """Whether the broker will have more to ask for in a moment."""
        return self.unseen > 0 and now_ms < self.hurry_until_ms


class Follower:
    """A follower as its fetches show it. `end_offset` -1: it has not fetched in this leader epoch."""

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
        """Of the incarnation that fetches (KIP-903); -1 where it does not say."""
        self.end_offset = UNKNOWN
        self.start_offset = UNKNOWN
        self.caught_up_ms = 0
        """The last moment at which it was known to have all that the leader had."""
        self.at_end = False
        """It has everything, and the leader has not appended since."""
        self._fetched_ms = 0
        self._leader_end = 0

    def begin(self, now_ms: int, *, in_sync: bool) -> None:
        """A leader epoch begins: members of the ISR get their time to show up."""
        self.caught_up_ms = now_ms if in_sync else -(1 << 62)
        self.clock.expect(now_ms)

    def forget(self) -> None:
        """It follows no more, or in another epoch."""
        if self.end_offset == UNKNOWN:
            self.clock.unseen -= 1

    def fetched(self, offset: int, start_offset: int, broker_epoch: int, leader_end: int) -> bool:
        """It asks for what begins at `offset`, and so has what is before; False when an older incarnation asks."""
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
        """The leader appends: up to its last fetch the follower had everything."""
        self.at_end = False
        self.caught_up_ms = max(self.caught_up_ms, self.clock.fetched_ms)
        self._fetched_ms = max(self._fetched_ms, self.clock.fetched_ms)

    def is_caught_up(self, leader_end: int, now_ms: int, lag_max_ms: int) -> bool:
        """Whether it has everything, or had within `lag_max_ms` (replica.lag.time.max.ms)."""
        return self.end_offset == leader_end or now_ms - self.caught_up_ms <= lag_max_ms

    def __repr__(self) -> str:
        return f"Follower({self.broker_id} at {self.end_offset}, broker epoch {self.broker_epoch})"
