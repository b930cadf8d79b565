"""How a topic stores its partitions: seven 4-byte numbers each; lists of brokers and directories are interned.

`PartitionState` is one unpacked partition; it is created on reading and never stored by the image. Clusters have few
distinct replica lists compared with partitions (placement is striped). So a row holds numbers that an `Interner`
assigns to lists. Numbers are counted, so that old ISRs do not pile up.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from kraft_protocol.ids import DIRECTORY_MIGRATING, Uuid

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
RECOVERY_UNCHANGED: Final = -1

Brokers: TypeAlias = tuple[int, ...]
Directories: TypeAlias = tuple[Uuid, ...]
T = TypeVar("T")


class MetadataError(Exception):
    """A record does not fit the earlier records: the log is damaged, or a broken controller wrote it."""


class PartitionState:
    """One partition at one moment. Immutable by convention."""

    __slots__ = (
        "adding",
        "directories",
        "elr",
        "isr",
        "last_known_elr",
        "leader",
        "leader_epoch",
        "leader_recovering",
        "partition_epoch",
        "removing",
        "replicas",
    )

    def __init__(
        self,
        replicas: Brokers,
        isr: Brokers,
        leader: int,
        leader_epoch: int,
        partition_epoch: int,
        directories: Directories = (),
        removing: Brokers = (),
        adding: Brokers = (),
        elr: Brokers = (),
        last_known_elr: Brokers = (),
        leader_recovering: int = 0,
    ) -> None:
        self.replicas = replicas
        self.isr = isr
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.directories = directories or (DIRECTORY_MIGRATING,) * len(replicas)
        self.removing = removing
        self.adding = adding
        self.elr = elr
        self.last_known_elr = last_known_elr
        self.leader_recovering = leader_recovering
        if len(self.directories) != len(replicas):
            raise MetadataError(f"{len(self.directories)} directories for {len(replicas)} replicas")

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment adds or removes replicas (KIP-455)."""
        return bool(self.adding or self.removing)

    @property
    def preferred_leader(self) -> int:
        """The first replica; -1 without replicas."""
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def has_preferred_leader(self) -> bool:
        """Whether the preferred leader leads now."""
        return self.leader == self.preferred_leader

    def directory(self, broker_id: int) -> Uuid:
        """The directory of a replica. Raises KeyError if the broker has no replica."""
        for replica, directory in zip(self.replicas, self.directories, strict=True):
            if replica == broker_id:
                return directory
        raise KeyError(broker_id)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartitionState):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__ if getattr(self, name))
        return f"PartitionState({fields})"

    @classmethod
    def of_record(cls, record: Any) -> PartitionState:
        """The state in a PartitionRecord."""
        return cls(
            tuple(record.replicas),
            tuple(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            tuple(record.directories or ()),
            tuple(record.removing_replicas or ()),
            tuple(record.adding_replicas or ()),
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            record.leader_recovery_state,
        )

    def changed_by(self, record: Any) -> PartitionState:
        """This partition after a PartitionChangeRecord: absent fields stay, the partition epoch increases by one.

        A record with a leader field starts a new leader epoch, even with the same leader or without a leader.
        """
        moved = record.leader != NO_LEADER_CHANGE
        recovering = record.leader_recovery_state
        replicas = self.replicas if record.replicas is None else tuple(record.replicas)
        return PartitionState(
            replicas,
            self.isr if record.isr is None else tuple(record.isr),
            record.leader if moved else self.leader,
            self.leader_epoch + 1 if moved else self.leader_epoch,
            self.partition_epoch + 1,
            self._directories_after(record, replicas),
            self.removing if record.removing_replicas is None else tuple(record.removing_replicas),
            self.adding if record.adding_replicas is None else tuple(record.adding_replicas),
            self.elr if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
            self.last_known_elr if record.last_known_elr is None else tuple(record.last_known_elr),
            self.leader_recovering if recovering == RECOVERY_UNCHANGED else recovering,
        )

    def _directories_after(self, record: Any, replicas: Brokers) -> Directories:
        """Records below the metadata.version with directories change replicas without naming directories (KIP-858)."""
        if record.directories is not None:
            return tuple(record.directories)
        if replicas == self.replicas:
            return self.directories
        known = dict(zip(self.replicas, self.directories, strict=True))
        return tuple(known.get(replica, DIRECTORY_MIGRATING) for replica in replicas)

    def without_elr(self) -> PartitionState:
        """This partition after a ClearElrRecord."""
        return PartitionState(
            self.replicas,
            self.isr,
            self.leader,
            self.leader_epoch,
            self.partition_epoch + 1,
            self.directories,
            self.removing,
            self.adding,
            (),
            (),
            self.leader_recovering,
        )


class Interner(Generic[T]):
    """Numbers for values: equal values have the same number. Uses are counted. Number 0 is the initial value."""

    __slots__ = ("_free", "_numbers", "_pins", "_released", "counts", "values")

    def __init__(self, zero: T) -> None:
        self.values: list[T] = [zero]
        self._numbers: dict[T, int] = {zero: 0}
        self.counts = array("i", [1])
        """The uses of each number, for code that adds many uses at once."""
        self._free: list[int] = []
        self._pins = 0
        self._released: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def acquire(self, value: T) -> int:
        """The number of a value, with one more reference; equal values share a number."""
        number = self._numbers.get(value)
        if number is not None:
            self.counts[number] += 1
            return number
        if self._free:
            number = self._free.pop()
            self.values[number] = value
            self.counts[number] = 1
        else:
            number = len(self.values)
            self.values.append(value)
            self.counts.append(1)
        self._numbers[value] = number
        return number

    def release(self, number: int) -> None:
        """Drop a reference. The last reference frees the number, but not before all pins are gone."""
        self.counts[number] -= 1
        if self.counts[number] == 0:
            if self._pins:
                self._released.append(number)
            else:
                self._drop(number)

    def pin(self) -> None:
        """Keep every number readable until `unpin`: a snapshot holds copies of rows that the image has released."""
        self._pins += 1

    def unpin(self) -> None:
        """End a pin. The last pin frees the numbers that were released meanwhile."""
        self._pins -= 1
        if self._pins == 0:
            for number in self._released:
                if self.counts[number] == 0 and self._numbers.get(self.values[number]) == number:
                    self._drop(number)
            self._released.clear()

    def _drop(self, number: int) -> None:
        del self._numbers[self.values[number]]
        self.values[number] = self.values[0]
        self._free.append(number)


Extra: TypeAlias = tuple[Brokers, Brokers, Brokers, Brokers, int]
"""removing, adding, ELR, last known ELR, recovering: nearly always all empty, so a single number represents them."""

NO_EXTRA: Final[Extra] = ((), (), (), (), 0)


class PartitionLists:
    """The interned lists that all rows of one image reference."""

    __slots__ = ("brokers", "directories", "extras")

    def __init__(self) -> None:
        self.brokers: Interner[Brokers] = Interner(())
        self.directories: Interner[Directories] = Interner(())
        self.extras: Interner[Extra] = Interner(NO_EXTRA)

    def replica_brokers(self) -> set[int]:
        """The brokers with replicas. Each ISR is a part of the replicas, so all lists in use count."""
        lists = self.brokers
        return {broker for one, uses in zip(lists.values, lists.counts, strict=True) if uses > 0 for broker in one}

    def pin(self) -> None:
        """Keep the lists of released rows readable until `unpin`; pins are counted."""
        self.brokers.pin()
        self.directories.pin()
        self.extras.pin()

    def unpin(self) -> None:
        """End a pin; the last one frees the lists that were released meanwhile."""
        self.brokers.unpin()
        self.directories.unpin()
        self.extras.unpin()


WIDTH: Final = 7
_REPLICAS, _ISR, _LEADER, _LEADER_EPOCH, _EPOCH, _DIRECTORIES, _EXTRA = range(WIDTH)
_HOLE: Final = array("i", [-1] * WIDTH)
"""An undefined partition number below a defined number. A correct log never leaves one."""


class TopicView(Protocol):
    """The interface of a topic for readers, committed or in an overlay."""

    @property
    def name(self) -> str:
        """The name; a later topic may have the same name, with another id."""
        ...

    @property
    def id(self) -> Uuid:
        """The id, which is never used again (KIP-516)."""
        ...

    def __len__(self) -> int:
        """The number of partitions."""

    def partition(self, number: int) -> PartitionState | None:
        """The state of a partition; None if it does not exist."""
        ...

    def leader(self, number: int) -> int:
        """The leader's broker id; -1 without a leader. Raises IndexError if the partition does not exist."""

    def partitions(self) -> Iterator[tuple[int, PartitionState]]:
        """Every partition with its number, ascending."""

    def in_sync(self, broker_id: int, first: int, end: int) -> list[int]:
        """The partitions from `first` up to `end` with the broker in their ISR, ascending."""

    def is_led_by(self, broker_id: int, first: int, end: int) -> bool:
        """Whether the broker leads a partition from `first` up to `end`."""


class Topic:
    """A committed topic and the rows of its partitions. Only `Topics` changes it."""

    __slots__ = ("id", "lists", "name", "rows")

    def __init__(self, name: str, topic_id: Uuid, lists: PartitionLists) -> None:
        self.name = name
        self.id = topic_id
        self.lists = lists
        self.rows = array("i")

    def __len__(self) -> int:
        return len(self.rows) // WIDTH

    def partition(self, number: int) -> PartitionState | None:
        """The state of a partition as an object; None if it does not exist."""
        at = number * WIDTH
        if number < 0 or at >= len(self.rows):
            return None
        replicas, isr, leader, leader_epoch, epoch, directories, extra = self.rows[at : at + WIDTH]
        if replicas < 0:
            return None
        brokers = self.lists.brokers.values
        removing, adding, elr, last_known, recovering = self.lists.extras.values[extra]
        return PartitionState(
            brokers[replicas],
            brokers[isr],
            leader,
            leader_epoch,
            epoch,
            self.lists.directories.values[directories],
            removing,
            adding,
            elr,
            last_known,
            recovering,
        )

    def leader(self, number: int) -> int:
        """Read one number of the row, without building the state. A hole in the numbers gives -1."""
        if number < 0:
            raise IndexError(number)
        return self.rows[number * WIDTH + _LEADER]

    def partitions(self) -> Iterator[tuple[int, PartitionState]]:
        """Build each state when it is reached; holes in the numbers are skipped."""
        for number in range(len(self)):
            state = self.partition(number)
            if state is not None:
                yield number, state

    def in_sync(self, broker_id: int, first: int, end: int) -> list[int]:
        """Scan one column; `end` is excluded and may be beyond the last partition."""
        column = self.rows[first * WIDTH + _ISR : end * WIDTH : WIDTH]
        brokers = self.lists.brokers.values
        wanted = {number for number in set(column) if number >= 0 and broker_id in brokers[number]}
        return [number for number, isr in enumerate(column, first) if isr in wanted] if wanted else []

    def is_led_by(self, broker_id: int, first: int, end: int) -> bool:
        """Scan two columns; `end` is excluded and may be beyond the last partition."""
        replicas, leaders = (self.rows[first * WIDTH + at : end * WIDTH : WIDTH] for at in (_REPLICAS, _LEADER))
        return (broker_id, True) in {(leader, at >= 0) for leader, at in zip(leaders, replicas, strict=True)}

    def in_sync_brokers(self, first: int, end: int) -> set[int]:
        """The brokers that are in sync for a partition from `first` up to `end`."""
        brokers = self.lists.brokers.values
        column = set(self.rows[first * WIDTH + _ISR : end * WIDTH : WIDTH])
        return {broker for number in column if number >= 0 for broker in brokers[number]}

    def unusual(self) -> Iterator[tuple[int, PartitionState]]:
        """The partitions that are not led by their preferred replica, or that have a non-empty `Extra`."""
        replicas, leaders, extras = (self.rows[at::WIDTH] for at in (_REPLICAS, _LEADER, _EXTRA))
        brokers = self.lists.brokers.values
        rows = list(zip(replicas, leaders, extras, strict=True))
        found = {
            row for row in set(rows) if row[0] >= 0 and (row[2] or not brokers[row[0]] or brokers[row[0]][0] != row[1])
        }
        for number, row in enumerate(rows) if found else ():
            if row in found:
                state = self.partition(number)
                assert state is not None, "law: an existing row can be read"
                yield number, state

    def put(self, number: int, state: PartitionState) -> bool:
        """Set one partition. Returns whether it is new."""
        at = number * WIDTH
        rows = self.rows
        while len(rows) <= at:
            rows.extend(_HOLE)
        lists = self.lists
        extra = (state.removing, state.adding, state.elr, state.last_known_elr, state.leader_recovering)
        old = rows[at : at + WIDTH]
        rows[at : at + WIDTH] = array(
            "i",
            (
                lists.brokers.acquire(state.replicas),
                lists.brokers.acquire(state.isr),
                state.leader,
                state.leader_epoch,
                state.partition_epoch,
                lists.directories.acquire(state.directories),
                lists.extras.acquire(extra),
            ),
        )
        self._release(old)
        return old[_REPLICAS] < 0

    def _release(self, row: Sequence[int]) -> None:
        if row[_REPLICAS] < 0:
            return
        lists = self.lists
        lists.brokers.release(row[_REPLICAS])
        lists.brokers.release(row[_ISR])
        lists.directories.release(row[_DIRECTORIES])
        lists.extras.release(row[_EXTRA])

    def release_all(self) -> None:
        """Release the numbers of the rows after the topic's deletion. The rows stay readable while pinned."""
        for at in range(0, len(self.rows), WIDTH):
            self._release(self.rows[at : at + WIDTH])

    def pack(self) -> None:
        """Release the memory that growing left over: most topics never change their number of partitions."""
        self.rows = self.rows[:]

    def copy(self) -> Topic:
        """A copy of the topic for a snapshot that has pinned the lists; the copy does not count uses."""
        other = Topic(self.name, self.id, self.lists)
        other.rows = self.rows[:]
        return other

    def numbers_with(self, column: int, wanted: set[int]) -> Iterator[int]:
        """The partitions with a list in `column` that is among the interned numbers `wanted`."""
        for number, value in enumerate(self.rows[column::WIDTH]):
            if value in wanted:
                yield number


COLUMN_REPLICAS: Final = _REPLICAS
COLUMN_LEADER: Final = _LEADER
