"""The committed offsets of the groups of one partition: written, committed and pending.

Three views of the same records:
- latest: everything written (`groups`). Decisions (expiry, deletion) use it.
- committed: the latest offsets without writes above the high watermark. OffsetFetch uses it, because an offset that may
  still be lost with the leader must not be returned. Stored as an undo list per key, which is nearly always empty.
- pending: offsets in an open transaction; they become the latest offsets with its commit marker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from kraft_protocol.ids import ZERO_UUID, Uuid

NO_PRODUCER_ID = -1


class CommittedOffset(NamedTuple):
    """One committed offset. -1: no leader epoch; None: no expiry of its own."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None = None
    topic_id: Uuid = ZERO_UUID
    record_offset: int = -1
    """Its position in the log; decides between a transactional and a plain commit of the same partition."""


Key: TypeAlias = tuple[str, int]
"""Topic and partition."""
GroupKey: TypeAlias = tuple[str, str, int]
"""Group, topic and partition."""
TopicOffsets: TypeAlias = dict[str, dict[int, CommittedOffset]]


class OffsetTable:
    """The offsets of all groups of one partition of `__consumer_offsets`."""

    __slots__ = ("_committed_to", "_open", "_undo", "_undo_queue", "count", "groups", "pending")

    def __init__(self) -> None:
        self.groups: dict[str, TopicOffsets] = {}
        self.count = 0
        self.pending: dict[int, dict[GroupKey, CommittedOffset]] = {}
        self._open: dict[str, dict[Key, set[int]]] = {}
        self._committed_to = 0
        self._undo: dict[str, dict[Key, deque[CommittedOffset | None]]] = {}
        self._undo_queue: deque[tuple[int, str, Key]] = deque()

    # -- writing

    def replay(self, record_offset: int, producer_id: int, key: GroupKey, value: CommittedOffset | None) -> None:
        """Apply one record (None: tombstone) at `record_offset` of the log."""
        group, topic, partition = key
        if value is not None and producer_id != NO_PRODUCER_ID:
            self.pending.setdefault(producer_id, {})[key] = value
            self._open.setdefault(group, {}).setdefault((topic, partition), set()).add(producer_id)
            return
        self._put(record_offset, key, value)
        if value is None:
            opened = self._open.get(group, {}).pop((topic, partition), None)
            for pid in opened or ():
                self.pending.get(pid, {}).pop(key, None)
            if opened is not None and not self._open[group]:
                del self._open[group]

    def end_transaction(self, record_offset: int, producer_id: int, *, commit: bool) -> None:
        """Apply a transaction marker: its pending offsets become effective, unless a later plain commit replaced
        them."""
        pending = self.pending.pop(producer_id, None)
        if pending is None:
            return
        for (group, topic, partition), value in pending.items():
            keys = self._open.get(group, {})
            producers = keys.get((topic, partition))
            if producers is not None:
                producers.discard(producer_id)
                if not producers:
                    del keys[topic, partition]
                if not keys:
                    del self._open[group]
            if commit:
                existing = self.get(group, topic, partition)
                if existing is None or value.record_offset > existing.record_offset:
                    self._put(record_offset, (group, topic, partition), value)

    def _put(self, record_offset: int, group_key: GroupKey, value: CommittedOffset | None) -> None:
        group, topic, partition = group_key
        topics = self.groups.get(group)
        before = topics.get(topic, {}).get(partition) if topics is not None else None
        if record_offset >= self._committed_to:
            key = (topic, partition)
            self._undo.setdefault(group, {}).setdefault(key, deque()).append(before)
            self._undo_queue.append((record_offset, group, key))
        if value is not None:
            self.groups.setdefault(group, {}).setdefault(topic, {})[partition] = value
            self.count += before is None
        elif before is not None:
            assert topics is not None
            del topics[topic][partition]
            if not topics[topic]:
                del topics[topic]
            if not topics:
                del self.groups[group]
            self.count -= 1

    def committed_to(self, high_watermark: int) -> None:
        """All records below `high_watermark` are committed."""
        self._committed_to = max(self._committed_to, high_watermark)
        queue = self._undo_queue
        while queue and queue[0][0] < high_watermark:
            _, group, key = queue.popleft()
            keys = self._undo[group]
            keys[key].popleft()
            if not keys[key]:
                del keys[key]
                if not keys:
                    del self._undo[group]

    # -- reading

    def get(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        """The latest written offset."""
        topics = self.groups.get(group)
        return topics.get(topic, {}).get(partition) if topics is not None else None

    def committed(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        """The committed offset of one partition."""
        undo = self._undo.get(group)
        if undo is not None and (before := undo.get((topic, partition))) is not None:
            return before[0]
        return self.get(group, topic, partition)

    def all_committed(self, group: str) -> TopicOffsets:
        """All committed offsets of the group.

        Do not change it: without uncommitted writes it is the table's own dict.
        """
        topics = self.groups.get(group, {})
        undo = self._undo.get(group)
        if undo is None:
            return topics
        view = {topic: dict(partitions) for topic, partitions in topics.items()}
        for (topic, partition), before in undo.items():
            if before[0] is None:
                view.get(topic, {}).pop(partition, None)
            else:
                view.setdefault(topic, {})[partition] = before[0]
        return {topic: partitions for topic, partitions in view.items() if partitions}

    def is_pending(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction holds an offset for the partition."""
        return (topic, partition) in self._open.get(group, {})

    def has_open_transactions(self, group: str) -> bool:
        """Whether an open transaction holds offsets of the group; until it ends, the group must stay."""
        return group in self._open

    def keys(self, group: str) -> Iterator[Key]:
        """Every partition with a written or pending offset, each once."""
        seen = set()
        for topic, partitions in self.groups.get(group, {}).items():
            for partition in partitions:
                seen.add((topic, partition))
                yield topic, partition
        for key in self._open.get(group, {}):
            if key not in seen:
                yield key
