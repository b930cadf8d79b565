"""The metadata as it will be once the active controller's appended records are committed (design decision 2).

The controller plans against it, calls `apply` with what it is about to append, and answers after commit. On commit the
loader has changed the image below; `committed` then takes out of the overlay what the image says by itself.
Losing leadership: `clear`. All of it costs what was appended, not what exists.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from kraft_node.base.ids import Uuid
from kraft_node.metadata.brokers import BrokerRegistration, ControllerRegistration
from kraft_node.metadata.delta import Entity
from kraft_node.metadata.image import SECTION_NAMES, MetadataImage, _Derived
from kraft_node.metadata.replay import replay
from kraft_node.metadata.sections import OverlaySection, Touched
from kraft_node.metadata.topics import OverlayTopics


class Overlay(_Derived):
    """The reading interface of `MetadataImage` over an image plus uncommitted records."""

    __slots__ = (
        "_begun_at",
        "_records",
        "_touched",
        "acls",
        "base",
        "brokers",
        "configs",
        "controllers",
        "features",
        "producer_ids",
        "quotas",
        "scram",
        "tokens",
        "topics",
        "zk_migration",
    )

    def __init__(self, base: MetadataImage) -> None:
        self.base = base
        touched = self._touched = Touched()
        self._records: deque[tuple[int, Any]] = deque()
        self._begun_at: int | None = None
        self.features: OverlaySection[str, int] = OverlaySection(base.features, touched)
        self.brokers: OverlaySection[int, BrokerRegistration] = OverlaySection(base.brokers, touched)
        self.controllers: OverlaySection[int, ControllerRegistration] = OverlaySection(base.controllers, touched)
        self.topics = OverlayTopics(base.topics, touched)
        self.configs: OverlaySection[tuple[int, str], Mapping[str, str]] = OverlaySection(base.configs, touched)
        self.quotas: OverlaySection[Entity, Mapping[str, float]] = OverlaySection(base.quotas, touched)
        self.producer_ids: OverlaySection[str, Any] = OverlaySection(base.producer_ids, touched)
        self.acls: OverlaySection[Uuid, Any] = OverlaySection(base.acls, touched)
        self.scram: OverlaySection[tuple[int, str], Any] = OverlaySection(base.scram, touched)
        self.tokens: OverlaySection[str, Any] = OverlaySection(base.tokens, touched)
        self.zk_migration: OverlaySection[str, Any] = OverlaySection(base.zk_migration, touched)

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction has been begun here and not yet ended."""
        return self._begun_at is not None

    @property
    def is_empty(self) -> bool:
        return not self._records

    def apply(self, first_offset: int, records: Sequence[Any]) -> None:
        """Add records appended at `first_offset` and the offsets after it."""
        for offset, record in enumerate(records, start=first_offset):
            self._records.append((offset, record))
            kind = type(record).__name__
            if kind == "BeginTransactionRecord":
                self._begun_at = offset
            elif kind == "EndTransactionRecord":
                self._begun_at = None
            elif kind == "AbortTransactionRecord":
                self._abort()
            else:
                self._touched.offset = offset
                replay(self, record)

    def _abort(self) -> None:
        """Undo what the open transaction said, by saying all but that again."""
        begun_at = self._begun_at
        if begun_at is not None:
            for offset, record in self.take_back(begun_at):
                self.apply(offset, (record,))

    def take_back(self, offset: int) -> list[tuple[int, Any]]:
        """Forget everything; what was applied below `offset` is for the caller to apply again, in that order."""
        kept = [entry for entry in self._records if entry[0] < offset]
        self.clear()
        return kept

    def committed(self) -> None:
        """The image below has moved on to its `offset`: forget what it holds by now."""
        offset = self.base.offset
        while self._records and self._records[0][0] <= offset:
            self._records.popleft()
        self._touched.expire(offset)

    def uncommitted(self) -> list[Any]:
        """The records that the image below does not hold yet, in order."""
        return [record for _, record in self._records]

    def clear(self) -> None:
        """Leadership is lost: what was not committed may never be."""
        self._touched.clear()
        self._records.clear()
        self._begun_at = None


assert all(name in Overlay.__slots__ for name in SECTION_NAMES)
