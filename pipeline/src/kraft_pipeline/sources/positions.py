"""Positions of a reader: offsets, with the ids of their cluster and topics.

An offset alone does not identify a log. If a topic is deleted and created again, or another cluster has the same
address, old offsets may still be in range. So checkpoints of streams and commits of tables store the ids of the
cluster and the topics with the offsets. Readers compare them with the current ids. They also store the epochs of the
leaders that reported the offsets. If an unclean election truncates a log and it grows again, other records have these
offsets (KIP-320).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from kraft_protocol.client.cluster import Cluster
from kraft_protocol.client.errors import BrokerError, DataLossError
from kraft_protocol.client.requests import EARLIEST
from kraft_protocol.errors import ErrorCode

Key: TypeAlias = tuple[str, int]
Offsets: TypeAlias = dict[Key, int]

IDS: Final = "@ids"
BEGUN: Final = "@begun"
UNTIL: Final = "@until"
EPOCHS: Final = "@epochs"
ROWS: Final = "@rows"
NOTES: Final = "@notes"
"""Keys in the JSON form; they are not valid names of topics."""
_NEWEST: Final = (1 << 31) - 1
"""NOT_LEADER_OR_FOLLOWER."""


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset to read of each partition. The ids are empty in positions of earlier releases."""

    offsets: Offsets
    cluster: str = ""
    topics: Mapping[str, str] = field(default_factory=dict)
    """Topic ids in hexadecimal digits, by name."""
    begun: Offsets = field(default_factory=dict)
    """First offsets read: tables keep them for backfills, streams until the end of their first micro-batch."""
    until: Offsets = field(default_factory=dict)
    """End offsets of a backfill, fixed at its start; otherwise empty."""
    epochs: Offsets = field(default_factory=dict)
    """Epochs of the leaders with all records below the offsets; unknown epochs are missing."""
    rows: Offsets = field(default_factory=dict)
    """For dead letters: the number of rows that their batch has from each partition."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Texts that a writer stores in the same transaction, such as the name of a file."""

    @property
    def is_beginning(self) -> bool:
        """Whether nothing has been read yet."""
        return self.offsets == self.begun

    def to_json(self) -> dict[str, Any]:
        """{"orders": {"0": 5}} as in Spark's `kafka` source, with the other fields under keys that begin with `@`."""
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
        """Inverse of `to_json`, from a mapping or a JSON text. Raises ValueError if it is malformed."""
        try:
            parsed = dict(json.loads(found) if isinstance(found, str) else found)
            ids = parsed.pop(IDS, {"cluster": "", "topics": {}})
            begun, until = _by_key(parsed.pop(BEGUN, {})), _by_key(parsed.pop(UNTIL, {}))
            epochs, rows = _by_key(parsed.pop(EPOCHS, {})), _by_key(parsed.pop(ROWS, {}))
            notes = dict(parsed.pop(NOTES, {}))
            return cls(_by_key(parsed), ids["cluster"], dict(ids["topics"]), begun, until, epochs, rows, notes)
        except (ValueError, TypeError, AttributeError, KeyError) as e:
            raise ValueError(f"{found!r} are not offsets: {e}") from None


def _by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _by_key(found: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {(topic, int(p)): int(offset) for topic, ps in found.items() for p, offset in ps.items()}


class Loss(NamedTuple):
    """Records [first, end) of one partition that were lost before they were read, or that were replaced by others."""

    topic: str
    partition: int
    first: int
    end: int
    """Exclusive; -1 if it is unknown."""
    cause: str
    mark: str
    """Identifies the loss among the losses of the partition, also if it is found again."""

    def __str__(self) -> str:
        lost = f"from offset {self.first} on" if self.end < 0 else f"offsets {self.first} to {self.end - 1}"
        return f"{self.topic}-{self.partition}: {lost} may have been lost: {self.cause}"


def position(cluster: Cluster, offsets: Offsets, epochs: Offsets | None = None) -> Position:
    """The offsets with the cluster's id and the topics' ids from the last metadata. Raises BrokerError."""
    topics = {topic: cluster.topic(topic).id.hex() for topic in {topic for topic, _ in offsets}}
    return Position(offsets, cluster.cluster_id, topics, epochs=epochs or {})


def strangers(then: Position, now: Position) -> set[str]:
    """Names of topics that have other ids in `now` than in `then`; all common names if the cluster differs."""
    names = {topic for topic, _ in then.offsets} & {topic for topic, _ in now.offsets}
    if then.cluster and now.cluster and then.cluster != now.cluster:
        return names
    return {name for name in names if then.topics.get(name) not in {None, now.topics.get(name)}}


class Going(NamedTuple):
    """Where to continue: valid offsets, partitions to read from their beginning, and losses."""

    good: Offsets
    new: list[Key]
    lost: list[Loss]


def continued(then: Position, now: Position) -> Going:
    """Where a reader at `then` continues, by the ids of the cluster and the topics."""
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
    former_id, present_id = then.topics[topic], now.topics[topic]
    return f"the topic has been deleted and made again (its id was {former_id} and is {present_id} now)", present_id


def followed(cluster: Cluster, then: Position, now: Position, *, bottom: bool = False) -> Going:
    """Like `continued`, but also check the logs: after an unclean election, reading continues from the truncation.

    `bottom`: also check the first offsets, because retention may have deleted unread records. Raises ClientError, and
    BrokerError if the answering leader has been replaced: records that it lacks are not lost.
    """
    good, new, lost = continued(then, now)
    for key in good:
        if then.epochs.get(key, -1) > now.epochs.get(key, _NEWEST):
            raise BrokerError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{key[0]}-{key[1]}: its leader of epoch {now.epochs[key]} has been replaced",
            )
    read = {
        key: (offset, then.epochs[key])
        for key, offset in good.items()
        if key in then.epochs and key in now.epochs and then.epochs[key] != now.epochs[key]
    }
    for key, cut in sorted(cluster.find_truncations(read).items()):
        cause = f"an unclean election has truncated the log of epoch {then.epochs[key]}"
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
    """Raise DataLossError for the first loss, if any."""
    for loss in lost:
        raise DataLossError(f"{loss} (failOnDataLoss=false continues with the remaining records)")
