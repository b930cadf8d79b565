"""Where a reader of a cluster stands: offsets, and which cluster and topics they are of.

An offset alone does not say of which log it is: a topic that was deleted and made again, or another cluster at the same
address, has offsets of its own that may well be in range. So the id of the cluster and those of the topics are kept
with the offsets wherever these are (checkpoints of streams, commits of tables), and held against what is there now. So
are the epochs of the leaders that told the offsets: a log that an unclean election has cut off, and that has grown
beyond an offset again, holds other records below it (KIP-320).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from kraft_pipeline.client import BrokerError, Cluster, DataLossError
from kraft_pipeline.client.messages import EARLIEST

Key: TypeAlias = tuple[str, int]
Offsets: TypeAlias = dict[Key, int]

IDS: Final = "@ids"
BEGUN: Final = "@begun"
UNTIL: Final = "@until"
EPOCHS: Final = "@epochs"
ROWS: Final = "@rows"
NOTES: Final = "@notes"
"""No names of topics."""
_NEWEST: Final = (1 << 31) - 1
_STALE: Final = 6
"""NOT_LEADER_OR_FOLLOWER."""


@dataclass(frozen=True, slots=True)
class Position:
    """What is to be read next of each partition; the ids are empty in what earlier versions wrote."""

    offsets: Offsets
    cluster: str = ""
    topics: Mapping[str, str] = field(default_factory=dict)
    """Ids in hexadecimal digits, by name."""
    begun: Offsets = field(default_factory=dict)
    """Where reading began, where that is kept: of tables, for those who fill in what came before; of streams, up to the
    end of their first micro-batch."""
    until: Offsets = field(default_factory=dict)
    """Where reading is to end, where that was settled when it began."""
    epochs: Offsets = field(default_factory=dict)
    """Of the leaders whose logs had everything below the offsets; missing where they are unknown."""
    rows: Offsets = field(default_factory=dict)
    """Of dead letters: how many rows their batch made of each partition's records."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What a writer keeps in the same transaction, such as the name of a folder."""

    @property
    def is_beginning(self) -> bool:
        """Whether nothing has been read yet."""
        return self.offsets == self.begun

    def to_json(self) -> dict[str, Any]:
        """{"orders": {"0": 5}} as Spark's `kafka` source has it, and the ids."""
        found: dict[str, Any] = _by_topic(self.offsets)
        if self.begun:
            found[BEGUN] = _by_topic(self.begun)
        if self.until:
            found[UNTIL] = _by_topic(self.until)
        if self.epochs:
            found[EPOCHS] = _by_topic(self.epochs)
        if self.rows:
            found[ROWS] = _by_topic(self.rows)
        if self.notes:
            found[NOTES] = dict(self.notes)
        if self.cluster:
            found[IDS] = {"cluster": self.cluster, "topics": dict(sorted(self.topics.items()))}
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any] | str) -> Position:
        """What `to_json` was given. Raises ValueError for what it never gives."""
        try:
            parsed = dict(json.loads(found) if isinstance(found, str) else found)
            ids = parsed.pop(IDS, {"cluster": "", "topics": {}})
            begun, until = _by_key(parsed.pop(BEGUN, {})), _by_key(parsed.pop(UNTIL, {}))
            epochs, rows = _by_key(parsed.pop(EPOCHS, {})), _by_key(parsed.pop(ROWS, {}))
            notes = dict(parsed.pop(NOTES, {}))
            return cls(_by_key(parsed), ids["cluster"], dict(ids["topics"]), begun, until, epochs, rows, notes)
        except (ValueError, TypeError, AttributeError, KeyError) as e:
            raise ValueError(f"{found!r} are no offsets: {e}") from None


def _by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _by_key(found: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {(topic, int(p)): int(offset) for topic, ps in found.items() for p, offset in ps.items()}


class Loss(NamedTuple):
    """Records of one partition that are gone and were never read, or are others than those that were read."""

    topic: str
    partition: int
    first: int
    end: int
    """Exclusive; -1 where nobody knows how many they were."""
    cause: str
    mark: str
    """What tells this loss from others of the partition, however often it is found."""

    def __str__(self) -> str:
        lost = f"from offset {self.first} on" if self.end < 0 else f"offsets {self.first} to {self.end - 1}"
        return f"{self.topic}-{self.partition}: {lost} may have been lost: {self.cause}"


def position(cluster: Cluster, offsets: Offsets, epochs: Offsets | None = None) -> Position:
    """These offsets with the ids of the cluster and of the topics as they were told last."""
    topics = {topic: cluster.topic(topic).id.hex() for topic in {topic for topic, _ in offsets}}
    return Position(offsets, cluster.cluster_id, topics, epochs=epochs or {})


def strangers(then: Position, now: Position) -> set[str]:
    """The topics of `then` that are others in `now`, though they have the same names."""
    names = {topic for topic, _ in then.offsets} & {topic for topic, _ in now.offsets}
    if then.cluster and now.cluster and then.cluster != now.cluster:
        return names
    return {name for name in names if then.topics.get(name) not in {None, now.topics.get(name)}}


class Going(NamedTuple):
    """Where to go on: the offsets still good, the partitions to be read from their beginning, and what is lost."""

    good: Offsets
    new: list[Key]
    lost: list[Loss]


def continued(then: Position, now: Position) -> Going:
    """Where to go on that stood at `then`, by the ids of the cluster and the topics."""
    strange = strangers(then, now)
    gone = set(then.offsets) - set(now.offsets)
    good = {key: offset for key, offset in then.offsets.items() if key[0] not in strange and key in now.offsets}
    lost = []
    for topic, partition in sorted(gone | {key for key in then.offsets if key[0] in strange}):
        cause, mark = _vanished(then, now, topic, gone=(topic, partition) in gone)
        lost.append(Loss(topic, partition, then.offsets[topic, partition], -1, cause, mark))
    return Going(good, sorted(set(now.offsets) - set(good)), lost)


def _vanished(then: Position, now: Position, topic: str, *, gone: bool) -> tuple[str, str]:
    if then.cluster and now.cluster and then.cluster != now.cluster:
        return f"the offsets are of cluster {then.cluster}, this is cluster {now.cluster}", now.cluster
    if gone:
        return "the partition is gone", then.topics.get(topic, "")
    was, now_is = then.topics[topic], now.topics[topic]
    return f"the topic has been deleted and made again (its id was {was} and is {now_is} now)", now_is


def followed(cluster: Cluster, then: Position, now: Position, *, bottom: bool = False) -> Going:
    """As `continued`, after a look at the logs: what an unclean election cut off is read anew from the cut on.

    `bottom`: also where they begin now, since retention may have passed the offsets. Raises ClientError, BrokerError
    where a leader was asked that has been replaced: what it does not have is not lost.
    """
    good, new, lost = continued(then, now)
    for key in good:
        if then.epochs.get(key, -1) > now.epochs.get(key, _NEWEST):
            raise BrokerError(_STALE, f"{key[0]}-{key[1]}: its leader of epoch {now.epochs[key]} has been replaced")
    read = {
        key: (offset, then.epochs[key])
        for key, offset in good.items()
        if key in then.epochs and key in now.epochs and then.epochs[key] != now.epochs[key]
    }
    for key, cut in sorted(cluster.parted(read).items()):
        cause = f"an unclean election has cut off the log, which leaders of epoch {then.epochs[key]} had"
        lost.append(Loss(*key, cut, good[key], cause, f"{good[key]} {then.epochs[key]} {cut}"))
        good[key] = cut
    for key, offset in sorted(good.items()):
        if offset > now.offsets[key]:
            cause = f"the log ends at offset {now.offsets[key]} now"
            lost.append(Loss(*key, now.offsets[key], offset, cause, f"{offset} {now.offsets[key]}"))
            good[key] = now.offsets[key]
    read_now = [key for key, offset in good.items() if now.offsets[key] > offset] if bottom else []
    for key, start in sorted(cluster.offsets(dict.fromkeys(read_now, EARLIEST)).items()) if read_now else ():
        if start > good[key]:
            cause = f"offset {good[key]} is gone, the log has {start} to {now.offsets[key]} now"
            lost.append(Loss(*key, good[key], start, cause, f"{good[key]}"))
            good[key] = min(start, now.offsets[key])
    return Going(good, new, lost)


def refuse(lost: Sequence[Loss]) -> None:
    """Raises DataLossError for the first of them."""
    for loss in lost:
        raise DataLossError(f"{loss} (failOnDataLoss=false goes on with what is there)")
