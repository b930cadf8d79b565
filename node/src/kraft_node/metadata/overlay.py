"""The metadata that will be valid once the active controller's appended records are committed.

The controller plans against it, calls `apply` with the records that it is about to append, and answers after commit. On
a commit the loader has changed the image below; `committed` then removes the overlay's data that the image contains.
After a loss of leadership: `clear`. All costs depend on the appended records, not on the size of the metadata.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.kinds import SECTION_NAMES, kind_of
from kraft_node.metadata.kinds.kind import TransactionMark
from kraft_node.metadata.sections import OverlaySection, Touched
from kraft_node.metadata.store import MetadataStore
from kraft_node.metadata.topics import OverlayTopics


class Overlay(MetadataStore):
    """The reading interface of `MetadataImage` over an image plus uncommitted records."""

    __slots__ = ("_begun_at", "_records", "_touched", "base", "topics", *SECTION_NAMES)

    topics: OverlayTopics

    def __init__(self, base: MetadataImage) -> None:
        self.base = base
        touched = self._touched = Touched()
        self._records: deque[tuple[int, Any]] = deque()
        self._begun_at: int | None = None
        self.topics = OverlayTopics(base.topics, touched)
        for name in SECTION_NAMES:
            setattr(self, name, OverlaySection(base.section(name), touched))

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction was begun here and has not ended."""
        return self._begun_at is not None

    @property
    def opened(self) -> list[tuple[int, Any]]:
        """The entries of the transaction that was begun here and has not ended, with the record that began it."""
        begun_at = self._begun_at
        return [] if begun_at is None else [entry for entry in self._records if entry[0] >= begun_at]

    @property
    def is_empty(self) -> bool:
        """Whether the image below contains every applied record."""
        return not self._records

    def apply(self, first_offset: int, records: Sequence[Any]) -> None:
        """Add records that are appended at `first_offset` and the following offsets."""
        for offset, record in enumerate(records, start=first_offset):
            self._records.append((offset, record))
            kind = kind_of(record)
            if kind.mark is None:
                self._touched.offset = offset
                kind.replay(self, record)
            elif kind.mark is TransactionMark.BEGIN:
                self._begun_at = offset
            elif kind.mark is TransactionMark.END:
                self._begun_at = None
            else:
                self._abort()

    def _abort(self) -> None:
        """Undo the open transaction: apply all other records again."""
        begun_at = self._begun_at
        if begun_at is not None:
            for offset, record in self.take_back(begun_at):
                self.apply(offset, (record,))

    def take_back(self, offset: int) -> list[tuple[int, Any]]:
        """Drop everything. Returns the entries below `offset`; the caller must apply them again, in that order."""
        kept = [entry for entry in self._records if entry[0] < offset]
        self.clear()
        return kept

    def committed(self) -> None:
        """The image below has moved to its `offset`: drop the data that it contains."""
        offset = self.base.offset
        while self._records and self._records[0][0] <= offset:
            self._records.popleft()
        self._touched.expire(offset)

    def uncommitted(self) -> list[Any]:
        """The records that the image below does not have yet, in order."""
        return [record for _, record in self._records]

    def clear(self) -> None:
        """Leadership is lost: uncommitted records may never be committed."""
        self._touched.clear()
        self._records.clear()
        self._begun_at = None
