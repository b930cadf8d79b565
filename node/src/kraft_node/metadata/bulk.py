"""Conversion of millions of partitions between the bytes of a snapshot and the rows of an image, without objects.

Nearly every record of a large snapshot is a PartitionRecord without unusual content. It is read or written here in
some two microseconds. Unusual records (a reassignment, eligible leaders, an old version, a damaged value) are left to
the codec, which alone decides whether they are valid. Then `RowReader.take` returns False, and `RowWriter` encodes
with the codec.

Called by `loader` and `snapshot`. It must not know files or batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, pack, unpack
from typing import Final, TypeVar

from kraft_node.metadata.partitions import WIDTH, Interner, Topic
from kraft_node.metadata.records import FRAME_VERSION, RECORD_TYPES
from kraft_node.metadata.topics import Topics
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.runtime import put_uvarint

T = TypeVar("T")

PARTITION_TYPE: Final = next(number for number, name in RECORD_TYPES.items() if name == "PartitionRecord")
DIRECTORIES_SINCE: Final = 1
"""The first version of PartitionRecord with directories."""

_HEADS: Final = tuple(bytes((FRAME_VERSION, PARTITION_TYPE, version)) for version in (1, 2))
_HEAD: Final = 3
_TOPIC_ID: Final = _HEAD + 4
_LISTS: Final = _TOPIC_ID + 16
"""Position of the lists: after the partition's number and the topic's id."""
_NOTHING_MOVES: Final = b"\x01\x01"
"""No replicas are being removed or added: two empty compact arrays."""
_NO_TAGS: Final = b"\x00"
_ONE_BYTE: Final = 0x80
"""Counts from here on need more than one byte."""
_NUMBER: Final = Struct(">i")
_EPOCHS: Final = Struct(">iii")
_ROW: Final = Struct(f"={WIDTH}i")
_FIXED: Final = _LISTS + len(_NOTHING_MOVES) + _EPOCHS.size + len(_NO_TAGS)
"""Bytes of a value without its three lists."""


class _Shape:
    """The layout of all values with one length and number of replicas."""

    __slots__ = ("isr_count", "unpack")

    def __init__(self, length: int, count: int) -> None:
        """`count`: the encoded number of replicas (greater by one). Raises ValueError if no value has this form."""
        replicas, directories = 1 + 4 * (count - 1), 1 + 16 * (count - 1)
        isr = length - _FIXED - replicas - directories
        if not 0 < count < _ONE_BYTE or isr < 1 or (isr - 1) % 4 or isr // 4 >= _ONE_BYTE - 1:
            raise ValueError(f"no partition has {length} bytes and {count - 1} replicas")
        self.isr_count = isr // 4 + 1
        self.unpack = Struct(f">{_HEAD}si16s{replicas}s{isr}s2siii{directories}sc").unpack


class RowReader:
    """Reads values of PartitionRecords into the rows of `topics`. Create one for one snapshot, and `close` it."""

    __slots__ = ("_brokers", "_directories", "_first", "_next", "_shapes", "_topic", "_topic_id", "_topics")

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._topic_id: bytes = b""
        self._topic: Topic | None = None
        self._first = 0
        self._next = 0
        """The topic's partitions from `_first` up to this partition were read and are not noted yet."""
        self._brokers: dict[bytes, int] = {}
        """Encoded list -> its interned number; one count of each is held until `close`."""
        self._directories: dict[bytes, int] = {}
        self._shapes: dict[tuple[int, int], _Shape] = {}

    def take(self, value: bytes) -> bool:
        """Add the partition in `value`. Returns False without any effect for another or an unusual record."""
        if value[:_HEAD] not in _HEADS or len(value) <= _LISTS:
            self._leave_topic()  # it may concern the topic
            return False
        count = value[_LISTS]
        shape = self._shapes.get((len(value), count))
        if shape is None:
            try:
                shape = self._shapes[len(value), count] = _Shape(len(value), count)
            except ValueError:
                self._leave_topic()
                return False
        (_, number, topic_id, replicas, isr, moves, leader, leader_epoch, epoch, directories, tags) = shape.unpack(
            value
        )
        if topic_id != self._topic_id:
            self._enter_topic(topic_id)
        topic = self._topic
        if (
            topic is None
            or number != self._next
            or isr[0] != shape.isr_count
            or directories[0] != count
            or moves != _NOTHING_MOVES
            or tags != _NO_TAGS
        ):
            self._leave_topic()
            return False  # not the next partition of a created topic, or unusual
        lists = topic.lists
        known = self._brokers
        replicas_number = known.get(replicas)
        if replicas_number is None:
            replicas_number = self._meet(known, replicas, lists.brokers, _broker_ids(replicas))
        isr_number = known.get(isr)
        if isr_number is None:
            isr_number = self._meet(known, isr, lists.brokers, _broker_ids(isr))
        places = self._directories.get(directories)
        if places is None:
            places = self._meet(self._directories, directories, lists.directories, _directory_ids(directories))
        counts = lists.brokers.counts
        counts[replicas_number] += 1
        counts[isr_number] += 1
        lists.directories.counts[places] += 1
        topic.rows.frombytes(_ROW.pack(replicas_number, isr_number, leader, leader_epoch, epoch, places, 0))
        self._next = number + 1
        return True

    def _enter_topic(self, topic_id: bytes) -> None:
        self._leave_topic()
        key = Uuid(topic_id)
        topic = self._topics.by_id(key)
        if topic is not None and key in self._topics.changes:
            self._topic_id = topic_id
            self._topic = topic
            self._first = self._next = len(topic)

    def _leave_topic(self) -> None:
        """Note the partitions that were read, before other code changes or reads the topic."""
        topic = self._topic
        if topic is not None and self._next > self._first:
            self._topics.changes[topic.id].note_all(self._first, self._next)
            self._topics.partition_count += self._next - self._first
            topic.lists.extras.counts[0] += self._next - self._first  # number 0: no extras
        self._topic = None
        self._topic_id = b""

    def _meet(self, known: dict[bytes, int], encoded: bytes, lists: Interner[T], value: T) -> int:
        number = known[encoded] = lists.acquire(value)
        return number

    def close(self) -> None:
        """Release the interned numbers."""
        self._leave_topic()
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
    """Encodes the partitions of topics in one record version. The lists must be pinned while it is used."""

    __slots__ = ("_brokers", "_directories", "_head")

    def __init__(self, version: int) -> None:
        self._head = bytes((FRAME_VERSION, PARTITION_TYPE, version)) if version >= DIRECTORIES_SINCE else b""
        self._brokers: dict[int, bytes] = {}
        self._directories: dict[int, bytes] = {}

    def values(self, topic: Topic, first: int, end: int, unusual: Callable[[int], bytes]) -> list[bytes]:
        """The encoded partitions of `topic` from `first` up to `end`; `unusual` encodes the unusual partitions."""
        rows = topic.rows
        topic_id = bytes(topic.id)
        found: list[bytes] = []
        brokers, directories, head = self._brokers, self._directories, self._head
        for number in range(first, min(end, len(topic))):
            at = number * WIDTH
            replicas, isr, leader, leader_epoch, epoch, directory, extra = rows[at : at + WIDTH]
            if replicas < 0:
                continue  # a partition that does not exist
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
