"""The segment that a pass of compaction writes, until it replaces old segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.log import names
from kraft_node.log.flushing import fsync_path
from kraft_node.log.segments import txn_index
from kraft_node.log.segments.segment import Segment

if TYPE_CHECKING:
    from kraft_node.base.env import Disk
    from kraft_node.log.resting.segment_files import Owner
    from kraft_node.log.segments.files import Put
    from kraft_node.log.segments.txn_index import AbortedTxn
    from kraft_protocol.buffers import Buffer


class NewSegment(Segment):
    """Gathers index entries while the old segment is still in place: its index files have the same names."""

    __slots__ = ("in_place", "kept")

    def __init__(self, owner: Owner, base: int) -> None:
        super().__init__(owner, base)
        self.in_place = False
        self.kept: list[Buffer] = []
        """Pieces that are noted and not written yet."""

    @property
    def cleaned(self) -> str:
        """The .log file until it is swapped in."""
        return self.path(names.LOG + names.CLEANED)

    @property
    def cleaned_index(self) -> str:
        """The index of aborted transactions until it is swapped in."""
        return self.path(names.TXN_INDEX + names.CLEANED)

    def write_indexes(self, put: Put | None = None) -> None:
        """Write nothing before the swap: the names still belong to the old segment. Raises OSError."""
        if self.in_place:
            super().write_indexes(put)

    def write_aborted(self, disk: Disk, aborted: list[AbortedTxn]) -> None:
        """Write the index of aborted transactions, and make it durable. Raises OSError."""
        file = disk.open(self.cleaned_index, create=True)
        try:
            file.truncate(0)
            file.pwrite(0, [b"".join(txn_index.ENTRY.pack(txn_index.VERSION, *txn) for txn in aborted)])
            file.fsync()
        finally:
            file.close()
        disk.fsync_dir(self.owner.path)  # recovery must see that the .log is not renamed yet

    def sync(self) -> None:
        """Make the files durable in their place. Raises OSError."""
        disk = self.owner.dir.env.disk
        for suffix in (names.LOG, names.INDEX, names.TIME_INDEX):
            fsync_path(disk, self.path(suffix))
        disk.fsync_dir(self.owner.path)
