"""The owners of partitions, by the answers of coordinators to members.

A *tenure* is a time in which a member certainly owned a partition: it begins when the member receives an assignment
with the partition, and lasts until it sends its last heartbeat that is answered without taking the partition away.
Between both moments the coordinator had not given up the member, so:

- `owners`       tenures of two members in one partition do not overlap
- `epoch owner`  in each epoch of members, a partition is assigned to one member (groups of one protocol only: an empty
  group that changes its protocol begins its epochs anew)

A coordinator that was replaced, and does not know it, may go on answering. Its answers do not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker

Partition = tuple[str, int]


class Tenure(NamedTuple):
    """A member's certain ownership, in simulated milliseconds."""

    member: str
    begin_ms: float
    end_ms: float


class Ownership:
    """The owners in one group."""

    def __init__(self, checker: Checker, group: str, *, has_epochs: bool) -> None:
        """`has_epochs`: the law `epoch owner` applies."""
        self.checker = checker
        self.group = group
        self.tenures = 0
        self._has_epochs = has_epochs
        self._past: dict[Partition, list[Tenure]] = defaultdict(list)
        self._now: dict[tuple[str, Partition], tuple[float, float]] = {}
        self._released: dict[tuple[str, Partition], float] = {}
        """When a member gave up a partition that was taken from it; the coordinator does not know yet."""
        self._of_epoch: dict[tuple[Partition, int], str] = {}

    def assigned_to(self, member: str, partitions: Iterable[Partition], now_ms: float) -> None:
        """The member follows an assignment of exactly these partitions, and has given up all others.

        The coordinator waits for the member's report, so until now it kept the others for the member.
        """
        owned = set(partitions)
        for one, partition in [key for key in self._now if key[0] == member]:
            if partition not in owned:
                self._released.setdefault((one, partition), now_ms)
        for partition in owned:
            self._now.setdefault((member, partition), (now_ms, now_ms))

    def assigned_in(self, epoch: int, who: str, partitions: Iterable[Partition]) -> None:
        """The member, or the static member, has the partitions in its epoch."""
        if not self._has_epochs:
            return
        for partition in partitions:
            other = self._of_epoch.setdefault((partition, epoch), who)
            if other != who:
                text = f"{self.group}: {other} and {who} were both assigned it in epoch {epoch}"
                self.checker.broken("epoch owner", partition, text)

    def confirmed(self, member: str, sent_ms: float) -> None:
        """A heartbeat that was sent at that time was answered, and took nothing away from the member."""
        for key in [key for key in self._released if key[0] == member]:
            begin_ms, end_ms = self._now[key]
            self._now[key] = (begin_ms, max(end_ms, self._released[key]))
            self._close(*key)
        for key, (begin_ms, end_ms) in self._now.items():
            if key[0] == member and sent_ms > begin_ms:
                self._now[key] = (begin_ms, max(end_ms, sent_ms))

    def ended(self, member: str) -> None:
        """The member gives up everything."""
        for one, partition in [key for key in self._now if key[0] == member]:
            self._close(one, partition)

    def judge(self) -> None:
        """Judge the tenures that have not ended, too."""
        for member, partition in list(self._now):
            self._close(member, partition)

    def _close(self, member: str, partition: Partition) -> None:
        begin_ms, end_ms = self._now.pop((member, partition))
        self._released.pop((member, partition), None)
        if end_ms <= begin_ms:
            return
        own = Tenure(member, begin_ms, end_ms)
        self.tenures += 1
        for other in self._past[partition]:
            if other.member != member and max(own.begin_ms, other.begin_ms) < min(own.end_ms, other.end_ms):
                self.checker.broken("owners", partition, f"{self.group}: {_text(other)}, and {_text(own)}")
        self._past[partition].append(own)


def _text(tenure: Tenure) -> str:
    return f"{tenure.member} owned it from {tenure.begin_ms:.0f} to {tenure.end_ms:.0f} ms"
