"""A reassignment that balances replicas, leaders, racks and bytes over the brokers, with as few moves as possible.

1. Required moves: replicas on brokers that must not have replicas, and replicas that share a rack while another rack
   has no replica.
2. Counts: a broker gets the average, rounded down or up. The brokers with most replicas get the average rounded up, so
   no plan with the same balance moves fewer replicas. If no replica may move directly from a full broker to an empty
   broker, it moves by way of a third broker (an augmenting path). If racks do not allow equal shares, the other brokers
   are balanced among themselves.
3. Leaders: balanced in the same way, by the order of the replicas alone, which moves no data.
4. Bytes, if sizes are known: small partitions are preferred for moves. Then replicas are swapped between the brokers
   with most and fewest bytes until these are within a tolerance.

The result is the input of `kafka-reassign-partitions --execute`.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from kraft_pipeline.archive.errors import ArchiveError
from kraft_pipeline.archive.state import ClusterState

Key = tuple[str, int]
Assignment = dict[Key, list[int]]

TOLERANCE: Final = 0.05
"""Tolerance of bytes: the share above the average that no broker should exceed, if swaps can achieve it."""
SWAPS_MAX: Final = 10_000
SEARCHED: Final = 200
"""Replicas that are considered for a swap."""


@dataclass(frozen=True, slots=True)
class Score:
    """The balance of an assignment, and the cost to reach it from another assignment."""

    moved_replicas: int
    moved_bytes: int
    changed_partitions: int
    replicas_min: int
    replicas_max: int
    leaders_min: int
    leaders_max: int
    bytes_min: int
    bytes_max: int
    rack_violations: int
    """Replicas that share a rack although another rack has no replica of the partition."""

    def to_json(self) -> dict[str, int]:
        """The fields by name, for JSON."""
        return asdict(self)


def of_state(state: ClusterState, topics: Iterable[str] | None = None) -> Assignment:
    """The replicas of a state's partitions, without partitions that are being reassigned."""
    wanted = None if topics is None else set(topics)
    rows = state.partitions
    names = rows.column("topic").to_pylist()
    columns = (rows.column(c).to_pylist() for c in ("partition", "replicas", "adding_replicas", "removing_replicas"))
    return {
        (topic, number): replicas
        for topic, number, replicas, adding, removing in zip(names, *columns, strict=True)
        if (wanted is None or topic in wanted) and not adding and not removing
    }


def racks_of(state: ClusterState) -> dict[int, str | None]:
    """The racks of the brokers that are not fenced."""
    return {i: b["rack"] for i, b in sorted(state.small.brokers.items()) if not b["fenced"]}


def to_json(assignment: Mapping[Key, Sequence[int]]) -> dict[str, Any]:
    """The assignment in the JSON of kafka-reassign-partitions."""
    rows = [{"topic": t, "partition": p, "replicas": list(r)} for (t, p), r in sorted(assignment.items())]
    return {"version": 1, "partitions": rows}


def from_json(document: Mapping[str, Any]) -> Assignment:
    """Parse the output of `to_json` or of kafka-reassign-partitions --generate. Raises ArchiveError."""
    try:
        return {(row["topic"], int(row["partition"])): list(row["replicas"]) for row in document["partitions"]}
    except (KeyError, TypeError, ValueError) as e:
        raise ArchiveError(f"this is not a reassignment: {e!r}") from None


def score(
    before: Assignment, after: Mapping[Key, Sequence[int]], racks: Mapping[int, str | None], sizes: Mapping[Key, int]
) -> Score:
    """The balance of `after`, which may omit unchanged partitions."""
    whole = {**before, **after}
    moved = {key: len(set(now) - set(before[key])) for key, now in after.items() if key in before}
    replicas: Counter[int] = Counter(dict.fromkeys(racks, 0))
    leaders: Counter[int] = Counter(dict.fromkeys(racks, 0))
    load: Counter[int] = Counter(dict.fromkeys(racks, 0))
    violations = 0
    limit = _Limits(racks)
    for key, now in whole.items():
        replicas.update(now)
        leaders[now[0]] += 1
        for broker in now:
            load[broker] += sizes.get(key, 0)
        violations += limit.excess(now)
    return Score(
        moved_replicas=sum(moved.values()),
        moved_bytes=sum(count * sizes.get(key, 0) for key, count in moved.items()),
        changed_partitions=sum(1 for key, now in after.items() if list(now) != before.get(key)),
        replicas_min=min(replicas.values(), default=0),
        replicas_max=max(replicas.values(), default=0),
        leaders_min=min(leaders.values(), default=0),
        leaders_max=max(leaders.values(), default=0),
        bytes_min=min(load.values(), default=0),
        bytes_max=max(load.values(), default=0),
        rack_violations=violations,
    )


class _Limits:
    """Maximum replicas of a partition in a rack: an equal share, rounded up."""

    def __init__(self, racks: Mapping[int, str | None]) -> None:
        self.racks = racks
        self._names = {rack for rack in racks.values() if rack}

    def fits(self, others: Sequence[int], broker: int) -> bool:
        """Whether a replica may be on that broker, given the partition's other replicas."""
        if broker in others:
            return False
        rack = self.racks.get(broker)
        if not rack or len(self._names) < 2:
            return True
        limit = -(-(len(others) + 1) // len(self._names))
        return sum(1 for other in others if self.racks.get(other) == rack) < limit

    def excess(self, replicas: Sequence[int]) -> int:
        """Number of replicas above the maximum of their racks."""
        if len(self._names) < 2:
            return 0
        limit = -(-len(replicas) // len(self._names))
        counts = Counter(self.racks.get(broker) for broker in replicas)
        return sum(max(0, count - limit) for rack, count in counts.items() if rack)


def plan(
    before: Assignment,
    racks: Mapping[int, str | None],
    sizes: Mapping[Key, int] | None = None,
    *,
    tolerance: float = TOLERANCE,
) -> Assignment:
    """The changed partitions with their new replicas, on the brokers of `racks` only.

    Raises ArchiveError if a partition has more replicas than the cluster has brokers.
    """
    most = max((len(replicas) for replicas in before.values()), default=0)
    if most > len(racks):
        raise ArchiveError(f"a partition has {most} replicas, but there are {len(racks)} brokers")
    balance = _Balance(before, racks, sizes or {})
    balance.evict()
    balance.spread()
    balance.level()
    if sizes:
        balance.swap(tolerance)
    balance.level_leaders()
    return {key: now for key, now in zip(balance.keys, balance.replicas, strict=True) if now != before[key]}


class _Balance:
    """An assignment under construction."""

    def __init__(self, before: Assignment, racks: Mapping[int, str | None], sizes: Mapping[Key, int]) -> None:
        self.keys = list(before)
        self.replicas = [list(before[key]) for key in self.keys]
        self._sizes = [sizes.get(key, 0) for key in self.keys]
        self._limits = _Limits(racks)
        self._brokers = list(racks)
        self._counts = dict.fromkeys(self._brokers, 0)
        self._bytes = dict.fromkeys(self._brokers, 0)
        self._on: dict[int, list[int]] = {broker: [] for broker in self._brokers}
        """The partitions on each broker, smallest first. Entries may be stale."""
        self._scanned: dict[tuple[int, int], int] = {}
        for number in sorted(range(len(self.keys)), key=self._sizes.__getitem__):
            for broker in self.replicas[number]:
                if broker in self._counts:
                    self._counts[broker] += 1
                    self._bytes[broker] += self._sizes[number]
                    self._on[broker].append(number)

    def _move(self, number: int, source: int, target: int) -> None:
        replicas, size = self.replicas[number], self._sizes[number]
        replicas[replicas.index(source)] = target
        if source in self._counts:
            self._counts[source] -= 1
            self._bytes[source] -= size
        self._counts[target] += 1
        self._bytes[target] += size
        self._on[target].append(number)

    def _fits(self, number: int, source: int, target: int) -> bool:
        return self._limits.fits([b for b in self.replicas[number] if b != source], target)

    def _emptiest(self, number: int, source: int) -> int | None:
        """The best broker for this replica."""
        fitting = [b for b in self._brokers if b != source and self._fits(number, source, b)]
        return min(fitting, key=lambda b: (self._counts[b], self._bytes[b], b), default=None)

    def evict(self) -> None:
        """Move replicas off brokers that must not have replicas."""
        for number, replicas in enumerate(self.replicas):
            for source in [b for b in replicas if b not in self._counts]:
                target = self._emptiest(number, source)
                if target is None:  # the racks of the other replicas allow no broker: choose any
                    free = [b for b in self._brokers if b not in replicas]
                    target = min(free, key=lambda b: (self._counts[b], b))
                self._move(number, source, target)

    def spread(self) -> None:
        """Move replicas that share a rack to a rack with too few."""
        for number, replicas in enumerate(self.replicas):
            while self._limits.excess(replicas):
                excess = self._limits.excess(replicas)
                for source in sorted(replicas, key=lambda b: -self._counts[b]):
                    target = self._emptiest(number, source)
                    if target is None:
                        continue
                    if self._limits.excess([b if b != source else target for b in replicas]) < excess:
                        self._move(number, source, target)
                        break
                else:
                    break

    def level(self) -> None:
        """Balance counts of replicas: from brokers above their share to brokers below it."""
        shares, is_settled = _shares(self._counts), True
        while True:
            path = _path(self._counts, shares, self._candidate) or _uneven(self._counts, self._candidate)
            if path is None:
                if is_settled:  # unchanged since all brokers were considered
                    return
                self._scanned.clear()  # a move that did not fit before may fit now
                is_settled = True
                continue
            is_settled = False
            for source, target in reversed(path):
                number = self._candidate(source, target)
                assert number is not None, "moves that fitted when the path was found still fit: its steps are apart"
                self._move(number, source, target)

    def _candidate(self, source: int, target: int) -> int | None:
        """A partition with a replica that may move from `source` to `target`, preferably without moving its leader."""
        on, leading = self._on[source], None
        at = self._scanned.get((source, target), 0)
        for place in range(at, len(on)):
            number = on[place]
            replicas = self.replicas[number]
            if source not in replicas or not self._fits(number, source, target):
                if leading is None and place == self._scanned.get((source, target), 0):
                    self._scanned[source, target] = place + 1
                continue
            if replicas[0] != source:
                return number
            leading = number if leading is None else leading
            if place - self._scanned.get((source, target), 0) > SEARCHED:
                break
        return leading

    def swap(self, tolerance: float) -> None:
        """Balance bytes: swap large replicas of the fullest broker with small replicas of other brokers."""
        average = sum(self._bytes.values()) / max(1, len(self._bytes))
        for _ in range(SWAPS_MAX):
            full = max(self._bytes, key=self._bytes.__getitem__)
            if self._bytes[full] <= average * (1 + tolerance):
                return
            for empty in sorted(self._bytes, key=self._bytes.__getitem__):
                pair = self._pair(full, empty) if empty != full else None
                if pair is not None:
                    self._move(pair[0], full, empty)
                    self._move(pair[1], empty, full)
                    break
            else:
                return

    def _pair(self, full: int, empty: int) -> tuple[int, int] | None:
        """A replica of each broker to swap, so that the larger of the two loads becomes as small as possible."""
        here = self._present(full)[-SEARCHED:]
        there = self._present(empty)[:SEARCHED]
        best = 0
        found: tuple[int, int] | None = None
        gap = self._bytes[full] - self._bytes[empty]
        for number in here:
            if not self._fits(number, full, empty):
                continue
            for other in there:
                change = self._sizes[number] - self._sizes[other]
                gain = min(change, gap - change)
                if gain > best and self._fits(other, empty, full):
                    best, found = gain, (number, other)
        return found

    def _present(self, broker: int) -> list[int]:
        found = sorted({n for n in self._on[broker] if broker in self.replicas[n]}, key=self._sizes.__getitem__)
        self._on[broker] = found
        return found

    def level_leaders(self) -> None:
        """Balance leaders, by the order of replicas alone."""
        led: dict[tuple[int, int], list[int]] = defaultdict(list)
        counts = dict.fromkeys(self._brokers, 0)
        for number, replicas in enumerate(self.replicas):
            if replicas:
                counts[replicas[0]] += 1
                for other in replicas[1:]:
                    led[replicas[0], other].append(number)

        def candidate(source: int, target: int) -> int | None:
            numbers = led[source, target]
            while numbers and self.replicas[numbers[-1]][0] != source:
                numbers.pop()
            return numbers[-1] if numbers else None

        shares = _shares(counts)
        while True:
            path = _path(counts, shares, candidate) or _uneven(counts, candidate)
            if path is None:
                return
            for source, target in reversed(path):
                chosen = candidate(source, target)
                assert chosen is not None, "each step of a path is another leader's"
                replicas = self.replicas[chosen]
                at = replicas.index(target)
                replicas[0], replicas[at] = target, source
                for other in replicas[1:]:
                    led[target, other].append(chosen)
                counts[source] -= 1
                counts[target] += 1


def _shares(counts: Mapping[int, int]) -> dict[int, int]:
    """The share of each broker: the average, rounded up for the brokers that have most."""
    low, more = divmod(sum(counts.values()), max(1, len(counts)))
    ordered = sorted(counts, key=lambda b: (-counts[b], b))
    return {broker: low + (place < more) for place, broker in enumerate(ordered)}


def _path(counts: Mapping[int, int], shares: Mapping[int, int], candidate: Any) -> list[tuple[int, int]] | None:
    """The shortest path from a broker above its share to a broker below it, by steps that have a candidate."""
    sources = [b for b in counts if counts[b] > shares[b]]
    came: dict[int, int] = {}
    waiting = deque(sorted(sources, key=lambda b: shares[b] - counts[b]))
    seen = set(waiting)
    while waiting:
        at = waiting.popleft()
        for target in sorted(counts, key=lambda b: counts[b] - shares[b]):
            if target in seen or candidate(at, target) is None:
                continue
            seen.add(target)
            came[target] = at
            if counts[target] < shares[target]:
                path, step = [], target
                while step in came:
                    path.append((came[step], step))
                    step = came[step]
                return path[::-1]
            waiting.append(target)
    return None


def _uneven(counts: Mapping[int, int], candidate: Any) -> list[tuple[int, int]] | None:
    """A path between any two brokers with counts that differ by two or more, if the shares cannot be reached."""
    for source in sorted(counts, key=lambda b: -counts[b]):
        wanted = {broker: count + (count + 2 <= counts[source]) for broker, count in counts.items()}
        if wanted != counts:
            path = _path(counts, wanted | {source: counts[source] - 1}, candidate)
            if path is not None:
                return path
    return None
