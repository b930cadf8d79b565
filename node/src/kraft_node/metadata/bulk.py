"""Partitions by the million, between the bytes of a snapshot and the rows of an image, without an object for each.

Nearly every record of a large snapshot is a PartitionRecord with nothing unusual in it: such a one is read and written
here in some two microseconds. Whatever is unusual (a reassignment, eligible leaders, an old version, a damaged value)
is left to the codec, which decides alone what is right: `RowReader.take` then returns False, `RowWriter` encodes by it.

Called by `loader` and `snapshot`. It must not know files or batches.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from struct import Struct, pack, unpack
from typing import Final, TypeVar

from kraft_node.base.ids import Uuid
from kraft_node.metadata.features import record_version
from kraft_node.metadata.partitions import WIDTH, Interner, Topic
from kraft_node.metadata.records import FRAME_VERSION, RECORD_TYPES
from kraft_node.metadata.topics import TopicChange, Topics
from kraft_node.wire.runtime import put_uvarint

T = TypeVar("T")

PARTITION_TYPE: Final = next(number for number, name in RECORD_TYPES.items() if name == "PartitionRecord")
DIRECTORIES_SINCE: Final = 1
"""The version of PartitionRecord that has directories first."""

_HEADS: Final = tuple(bytes((FRAME_VERSION, PARTITION_TYPE, version)) for version in (1, 2))
_HEAD: Final = 3
_TOPIC_ID: Final = _HEAD + 4
_LISTS: Final = _TOPIC_ID + 16
"""Where the lists begin: after the partition's number and the topic's id."""
_NOTHING_MOVES: Final = b"\x01\x01"
"""No replicas being removed, none being added: two empty compact arrays."""
_NO_TAGS: Final = b"\x00"
_ONE_BYTE: Final = 0x80
"""Counts from here on take more bytes than one."""
_NUMBER: Final = Struct(">i")
_EPOCHS: Final = Struct(">iii")


class RowReader:
    """Takes values of PartitionRecords into the rows of `topics`. Make one for one snapshot; `close` it."""

    __slots__ = ("_brokers", "_change", "_directories", "_topic", "_topic_id", "_topics")

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._topic_id: bytes = b""
        self._topic: Topic | None = None
        self._change: TopicChange | None = None
        self._brokers: dict[bytes, int] = {}
        """Encoded list -> its interned number, of which one count is held until `close`."""
        self._directories: dict[bytes, int] = {}

    def take(self, value: bytes) -> bool:
        """Add the partition that `value` describes. False: it is something else, or unusual, and nothing was done."""
        if value[:_HEAD] not in _HEADS:
            self._topic_id = b""  # it may be about the topic
            return False
        try:
            count = value[_LISTS]
            isr_at = _LISTS - 3 + 4 * count
            in_sync = value[isr_at]
            rest_at = isr_at - 3 + 4 * in_sync
            leader, leader_epoch, epoch = _EPOCHS.unpack_from(value, rest_at + 2)
            directories_at = rest_at + 14
            end = directories_at + 1 + 16 * (count - 1)
            usual = (
                0 < count < _ONE_BYTE
                and 0 < in_sync < _ONE_BYTE
                and value[directories_at] == count
                and value[rest_at : rest_at + 2] == _NOTHING_MOVES
                and value[end:] == _NO_TAGS
            )
        except (IndexError, struct.error):
            return False
        if not usual:
            return False
        topic, number = self._topic_of(value[_TOPIC_ID:_LISTS]), _NUMBER.unpack_from(value, _HEAD)[0]
        if topic is None or self._change is None or number != len(topic.rows) // WIDTH:
            return False  # not the next partition of a topic that has been created
        lists = topic.lists
        brokers = lists.brokers
        replicas, isr = value[_LISTS:isr_at], value[isr_at:rest_at]
        directories = value[directories_at:end]
        known = self._brokers
        replicas_number = known.get(replicas)
        if replicas_number is None:
            replicas_number = self._meet(known, replicas, brokers, _broker_ids(replicas))
        isr_number = known.get(isr)
        if isr_number is None:
            isr_number = self._meet(known, isr, brokers, _broker_ids(isr))
        places = self._directories.get(directories)
        if places is None:
            places = self._meet(self._directories, directories, lists.directories, _directory_ids(directories))
        brokers.again(replicas_number)
        brokers.again(isr_number)
        lists.directories.again(places)
        lists.extras.again(0)
        topic.rows.extend((replicas_number, isr_number, leader, leader_epoch, epoch, places, 0))
        self._change.partitions.add(number)
        self._topics.partition_count += 1
        return True

    def _topic_of(self, topic_id: bytes) -> Topic | None:
        if topic_id != self._topic_id:
            self._topic_id = topic_id
            self._topic = self._topics.by_id(Uuid(topic_id))
            self._change = self._topics.changes.get(Uuid(topic_id))
        return self._topic

    def _meet(self, known: dict[bytes, int], encoded: bytes, lists: Interner[T], value: T) -> int:
        number = known[encoded] = lists.acquire(value)
        return number

    def close(self) -> None:
        """Give back what was held for the look-ups."""
        for number in self._brokers.values():
            self._topics.lists.brokers.release(number)
        for number in self._directories.values():
            self._topics.lists.directories.release(number)
        self._brokers.clear()
        self._directories.clear()


def _broker_ids(encoded: bytes) -> tuple[int, ...]:
    return unpack(f">{encoded[0] - 1}i", encoded[1:])


def _directory_ids(encoded: bytes) -> tuple[Uuid, ...]:
    return tuple(Uuid(encoded[at : at + 16]) for at in range(1, len(encoded), 16))


class RowWriter:
    """Encodes the partitions of topics at one metadata.version. The lists must be pinned as long as it is used."""

    __slots__ = ("_brokers", "_directories", "_head", "_level")

    def __init__(self, level: int) -> None:
        self._level = level
        version = record_version("PartitionRecord", level)
        self._head = bytes((FRAME_VERSION, PARTITION_TYPE, version)) if version >= DIRECTORIES_SINCE else b""
        self._brokers: dict[int, bytes] = {}
        self._directories: dict[int, bytes] = {}

    def values(self, topic: Topic, first: int, end: int, unusual: Callable[[int], bytes]) -> list[bytes]:
        """The encoded partitions of `topic` from `first` up to `end`; `unusual` encodes those that are."""
        rows = topic.rows
        topic_id = bytes(topic.id)
        found: list[bytes] = []
        brokers, directories, head = self._brokers, self._directories, self._head
        for number in range(first, min(end, len(topic))):
            at = number * WIDTH
            replicas, isr, leader, leader_epoch, epoch, directory, extra = rows[at : at + WIDTH]
            if replicas < 0:
                continue  # a number never spoken of
            if extra or not head:
                found.append(unusual(number))
                continue
            found.append(
                head
                + _NUMBER.pack(number)
                + topic_id
                + (brokers.get(replicas) or self._encode_brokers(topic, replicas))
                + (brokers.get(isr) or self._encode_brokers(topic, isr))
                + _NOTHING_MOVES
                + _EPOCHS.pack(leader, leader_epoch, epoch)
                + (directories.get(directory) or self._encode_directories(topic, directory))
                + _NO_TAGS
            )
        return found

    def _encode_brokers(self, topic: Topic, number: int) -> bytes:
        ids = topic.lists.brokers.values[number]
        encoded = self._brokers[number] = _count(ids) + pack(f">{len(ids)}i", *ids)
        return encoded

    def _encode_directories(self, topic: Topic, number: int) -> bytes:
        ids = topic.lists.directories.values[number]
        encoded = self._directories[number] = _count(ids) + b"".join(ids)
        return encoded


def _count(array: Sequence[object]) -> bytes:
    out = bytearray()
    put_uvarint(out, len(array) + 1)
    return bytes(out)
