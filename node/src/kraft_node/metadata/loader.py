"""Applies committed records to the image and calls the publishers, one batch at a time (with KIP-868).

The raft driver calls it with committed records, in order. Records of a metadata transaction are held back until its
EndTransactionRecord is committed; an AbortTransactionRecord drops them. So no reader ever sees half of a transaction:
`image.offset` stays at the record before the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from kraft_node.metadata.bulk import RowReader
from kraft_node.metadata.delta import MetadataDelta
from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.kinds import kind_of
from kraft_node.metadata.kinds.kind import TransactionMark
from kraft_node.metadata.partitions import MetadataError
from kraft_node.metadata.records import decode_record
from kraft_protocol.wire.errors import DecodeError

Publisher: TypeAlias = Callable[[MetadataDelta, MetadataImage], None]

TRANSACTION_RECORDS_MAX: Final = 5_000_000
"""A larger transaction means a damaged log: the largest real transaction is a migration of a whole cluster."""


class MetadataLoader:
    """Owns the image; no other code changes it."""

    __slots__ = ("_held", "_in_transaction", "_position", "followers", "image", "publishers")

    def __init__(self, image: MetadataImage | None = None) -> None:
        self.image = image or MetadataImage()
        self.publishers: list[Publisher] = []
        """Called in order after each batch that changed the image."""
        self.followers: list[Callable[[Any], None]] = []
        """Called with each record before the image replays it, except for records of snapshots."""
        self._in_transaction = False
        self._held: list[Any] = []
        self._position = (-1, -1, -1)

    @property
    def in_transaction(self) -> bool:
        """Whether a committed transaction is open; a new leader aborts it first."""
        return self._in_transaction

    def apply(self, records: Sequence[tuple[int, Any]], epoch: int, timestamp_ms: int) -> None:
        """Replay committed (offset, record) pairs of one epoch.

        Raises MetadataError, which names the offset, if a record does not fit; then the image must not be used.
        """
        for offset, record in records:
            try:
                self._apply_one(record)
            except MetadataError as e:
                raise MetadataError(f"metadata record at offset {offset}, epoch {epoch}: {e}") from e
            if not self._in_transaction:
                self._position = (offset, epoch, timestamp_ms)
        self._move()

    def load(self, records: Iterable[Any], last_offset: int, epoch: int, timestamp_ms: int) -> None:
        """Replace the image by a snapshot, which covers everything up to and including `last_offset`."""
        self._begin_anew()
        for record in records:
            self.image.replay(record)
        self._position = (last_offset, epoch, timestamp_ms)
        self._move()

    def load_values(
        self, values: Iterable[bytes], last_offset: int, epoch: int, timestamp_ms: Callable[[], int]
    ) -> None:
        """Like `load`, from encoded records; a million partitions need no object each.

        `timestamp_ms` is called once all values have been read. Raises MetadataError.
        """
        self._begin_anew()
        reader = RowReader(self.image.topics)
        try:
            for value in values:
                if not reader.take(value):
                    self.image.replay(_decoded(value))
        finally:
            reader.close()
        self._position = (last_offset, epoch, timestamp_ms())
        self._move()

    def _begin_anew(self) -> None:
        if self.image.offset >= 0:
            self.image.clear()
        self._in_transaction = False
        self._held = []

    def skip(self, last_offset: int, epoch: int, timestamp_ms: int) -> None:
        """Control records up to and including `last_offset` were committed; they do not change the image."""
        if not self._in_transaction:
            self._position = (last_offset, epoch, timestamp_ms)
            self._move()

    def _move(self) -> None:
        if self._position[0] > self.image.offset:
            self.image.moved_to(*self._position)

    def publish(self, *, is_snapshot: bool = False) -> MetadataDelta:
        """Call the publishers with the changes since the last call."""
        delta = self.image.take_delta()
        delta.is_snapshot = is_snapshot
        for publisher in self.publishers:
            publisher(delta, self.image)
        return delta

    def _apply_one(self, record: Any) -> None:
        kind = kind_of(record)
        if kind.mark is not None:
            self._mark(kind.mark)
        elif self._in_transaction:
            if len(self._held) >= TRANSACTION_RECORDS_MAX:
                raise MetadataError(f"a metadata transaction has more than {TRANSACTION_RECORDS_MAX} records")
            self._held.append(record)
        else:
            for follower in self.followers:
                follower(record)
            kind.replay(self.image, record)

    def _mark(self, mark: TransactionMark) -> None:
        if mark is TransactionMark.BEGIN:
            if self._in_transaction:
                raise MetadataError("a metadata transaction begins inside another")
            self._in_transaction = True
            return
        if not self._in_transaction:
            raise MetadataError(f"a metadata transaction {mark.value} that never began")
        self._in_transaction = False
        held, self._held = self._held, []
        for record in held if mark is TransactionMark.END else ():
            self._apply_one(record)


def _decoded(value: bytes) -> Any:
    try:
        return decode_record(value)
    except DecodeError as e:
        raise MetadataError(f"metadata record in a snapshot: {e}") from None
