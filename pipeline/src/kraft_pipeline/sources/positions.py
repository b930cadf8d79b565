"""Where a reader of a cluster stands: offsets, and which cluster and topics they are of.

An offset alone does not say of which log it is: a topic that was deleted and made again, or another cluster at the same
address, has offsets of its own that may well be in range. So the id of the cluster and those of the topics are kept
with the offsets wherever these are (checkpoints of streams, commits of tables), and held against what is there now.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from kraft_pipeline.client import Cluster, DataLossError

Key: TypeAlias = tuple[str, int]
Offsets: TypeAlias = dict[Key, int]

IDS: Final = "@ids"
BEGUN: Final = "@begun"
UNTIL: Final = "@until"
"""No names of topics."""


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
            return cls(_by_key(parsed), ids["cluster"], dict(ids["topics"]), begun, until)
        except (ValueError, TypeError, AttributeError, KeyError) as e:
            raise ValueError(f"{found!r} are no offsets: {e}") from None


def _by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _by_key(found: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {(topic, int(p)): int(offset) for topic, ps in found.items() for p, offset in ps.items()}


def position(cluster: Cluster, offsets: Offsets) -> Position:
    """These offsets with the ids of the cluster and of the topics as they were told last."""
    topics = {topic: cluster.topic(topic).id.hex() for topic in {topic for topic, _ in offsets}}
    return Position(offsets, cluster.cluster_id, topics)


def strangers(then: Position, now: Position) -> set[str]:
    """The topics of `then` that are others in `now`, though they have the same names."""
    names = {topic for topic, _ in then.offsets} & {topic for topic, _ in now.offsets}
    if then.cluster and now.cluster and then.cluster != now.cluster:
        return names
    return {name for name in names if then.topics.get(name) not in {None, now.topics.get(name)}}


def continued(then: Position, now: Position, *, fail_on_data_loss: bool) -> tuple[Offsets, list[Key]]:
    """Where to go on that stood at `then`: the offsets still good, and the partitions to be read from their beginning.

    Raises DataLossError for partitions that are gone and topics that are others, unless that does not matter.
    """
    strange = strangers(then, now)
    gone = sorted(set(then.offsets) - set(now.offsets))
    if fail_on_data_loss:
        _refuse(then, now, strange, gone)
    good = {key: offset for key, offset in then.offsets.items() if key[0] not in strange and key in now.offsets}
    return good, sorted(set(now.offsets) - set(good))


def _refuse(then: Position, now: Position, strange: Iterable[str], gone: list[Key]) -> None:
    hint = "records may have been lost that were never read (failOnDataLoss=false goes on with what is there)"
    if then.cluster and now.cluster and then.cluster != now.cluster:
        raise DataLossError(f"the offsets are of cluster {then.cluster}, this is cluster {now.cluster}: {hint}")
    for topic in sorted(strange):
        raise DataLossError(
            f"topic {topic} has been deleted and made again (its id was {then.topics[topic]} and is "
            f"{now.topics[topic]} now): {hint}"
        )
    for topic, partition in gone:
        raise DataLossError(f"{topic}-{partition} is gone: {hint}")
