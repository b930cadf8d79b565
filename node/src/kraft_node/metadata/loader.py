"""Applies committed records to the image and tells the publishers, one batch at a time (KIP-868 respected).

Called by the raft driver with what has been committed, in order. Records of a metadata transaction are held back until
its EndTransactionRecord is committed, and dropped by an AbortTransactionRecord, so that no reader ever sees half of
one: `image.offset` stays at the record before the transaction began.
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
from kraft_node.wire.errors import DecodeError

Publisher: TypeAlias = Callable[[MetadataDelta, MetadataImage], None]

TRANSACTION_RECORDS_MAX: Final = 5_000_000
"""A transaction larger than this is a damaged log: the largest real one carries a whole cluster (a migration)."""


class MetadataLoader:
    """Owns the image; the only one that changes it."""

    __slots__ = ("_held", "_in_transaction", "_position", "followers", "image", "publishers")

    def __init__(self, image: MetadataImage | None = None) -> None:
        self.image = image or MetadataImage()
        self.publishers: list[Publisher] = []
        """Called in order after each batch that moved the image."""
        self.followers: list[Callable[[Any], None]] = []
        """Told of each record before the image replays it, but not of those in snapshots."""
        self._in_transaction = False
        self._held: list[Any] = []
        self._position = (-1, -1, -1)

    @property
    def in_transaction(self) -> bool:
        """Whether a committed transaction is open: a new leader aborts it before anything else."""
        return self._in_transaction

    def apply(self, records: Sequence[tuple[int, Any]], epoch: int, timestamp_ms: int) -> None:
        """Replay committed (offset, record) pairs of one epoch.

        Raises MetadataError, naming the offset, when a record does not fit; the image is then not to be used.
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
        """Make the image what a snapshot says, which holds everything up to and with `last_offset`."""
        self._begin_anew()
        for record in records:
            self.image.replay(record)
        self._position = (last_offset, epoch, timestamp_ms)
        self._move()

    def load_values(
        self, values: Iterable[bytes], last_offset: int, epoch: int, timestamp_ms: Callable[[], int]
    ) -> None:
        """`load` from encoded records, a million partitions of which take no object each.

        `timestamp_ms` is asked once all values have been read. Raises MetadataError.
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
        """Control records up to and with `last_offset` were committed: they say nothing to the image."""
        if not self._in_transaction:
            self._position = (last_offset, epoch, timestamp_ms)
            self._move()

    def _move(self) -> None:
        if self._position[0] > self.image.offset:
            self.image.moved_to(*self._position)

    def publish(self, *, is_snapshot: bool = False) -> MetadataDelta:
        """Tell the publishers what has changed since the last call."""
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
