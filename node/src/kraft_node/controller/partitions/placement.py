"""Placement of the replicas of new partitions: striped over racks, then over the brokers of a rack (KIP-631, KIP-36).

Racks are used in order of name from a random start, and the brokers of a rack in order of id from a random start. The
start moves by one for each partition, so that leaders and followers spread evenly. The first replica is on an unfenced
broker. In each rack, unfenced brokers come before fenced brokers. No broker holds two replicas of a partition. When
every unfenced broker has led once, the racks and their brokers are shuffled, so that the followers of one broker's
partitions spread over several brokers: when a broker ends, all others share the partitions that it led.

Brokers without a rack form their own rack. Callers leave out brokers with cordoned log directories only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

from kraft_node.base.env import Rng
from kraft_protocol.errors import ErrorCode, KafkaError

_T = TypeVar("_T")

REPLICATION_FACTOR_MAX: Final = 32_767
"""The maximum of the protocol's int16."""


class UsableBroker(NamedTuple):
    """A broker that may get replicas."""

    id: int
    rack: str | None
    fenced: bool
    """Fenced, or about to be because it is shutting down."""


class _Ring:
    """The fenced or unfenced brokers of a rack. Each round returns every broker once and starts one broker further."""

    __slots__ = ("brokers", "given", "offset", "round")

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self.given = 0
        self.offset = 0
        self.round = 0

    def start(self, rng: Rng) -> None:
        self.brokers.sort()
        if self.brokers:
            self.offset = rng.randrange(len(self.brokers))

    def shuffle(self, rng: Rng) -> None:
        _shuffle(self.brokers, rng)

    def take(self, this_round: int) -> int:
        """The next broker; -1 if this round has returned all."""
        count = len(self.brokers)
        if not count:
            return -1
        if self.round != this_round:
            self.round = this_round
            self.given = 0
            self.offset = (self.offset + 1) % count
        if self.given >= count:
            return -1
        broker = self.brokers[(self.given + self.offset) % count]
        self.given += 1
        return broker


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self) -> None:
        self.fenced = _Ring()
        self.unfenced = _Ring()

    def take(self, this_round: int) -> int:
        broker = self.unfenced.take(this_round)
        return broker if broker >= 0 else self.fenced.take(this_round)


class StripedPlacer:
    """Places the partitions of one topic. Use one object per request and topic."""

    __slots__ = ("_offset", "_racks", "_rng", "_round", "total", "unfenced")

    def __init__(self, brokers: Iterable[UsableBroker], rng: Rng) -> None:
        racks: dict[str | None, _Rack] = {}
        self.total = 0
        self.unfenced = 0
        for broker in brokers:
            rack = racks.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.fenced else rack.unfenced).brokers.append(broker.id)
            self.total += 1
            self.unfenced += not broker.fenced
        names = sorted(racks, key=lambda name: (name is not None, name or ""))
        self._racks = [racks[name] for name in names]
        for rack in self._racks:
            rack.fenced.start(rng)
            rack.unfenced.start(rng)
        self._rng = rng
        self._round = 0
        self._offset = rng.randrange(len(names)) if names else 0

    def place(self, partitions: int, replicas: int) -> list[list[int]]:
        """The replicas of each partition, the preferred leader first.

        Raises KafkaError INVALID_REPLICATION_FACTOR without enough brokers.
        """
        if replicas <= 0:
            self._refuse(f"Invalid replication factor {replicas}: the replication factor must be positive.")
        if self.unfenced == 0:
            self._refuse("All brokers are currently fenced, or have all their log directories cordoned.")
        if replicas > self.total:
            self._refuse(
                f"The target replication factor of {replicas} cannot be reached because only {self.total} broker(s) "
                "are registered or some brokers have all their log directories cordoned."
            )
        return [self._place_one(replicas) for _ in range(partitions)]

    @staticmethod
    def _refuse(message: str) -> None:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)

    def _place_one(self, replicas: int) -> list[int]:
        if self._round == self.unfenced and self.unfenced > 1:
            self._shuffle()
            self._round = 0
        racks = self._racks
        if self._offset == len(racks):
            self._offset = 0
        first = self._offset
        leader = racks[first].unfenced.take(self._round)
        while leader < 0:
            first = (first + 1) % len(racks)
            leader = racks[first].unfenced.take(self._round)
        placed = [leader]
        at = self._offset
        leader_rack = first
        while len(placed) < replicas:
            if at == leader_rack:
                leader_rack = -1  # the leader's rack was used for this partition; skip it only once
                broker = -1
            else:
                broker = racks[at].take(self._round)
            at = (at + 1) % len(racks)
            if broker >= 0:
                placed.append(broker)
        self._round += 1
        self._offset += 1
        return placed

    def _shuffle(self) -> None:
        _shuffle(self._racks, self._rng)
        for rack in self._racks:
            rack.fenced.shuffle(self._rng)
            rack.unfenced.shuffle(self._rng)


def _shuffle(items: list[_T], rng: Rng) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = rng.randrange(last + 1)
        items[last], items[other] = items[other], items[last]
