"""The interfaces of the transaction coordinator.

`coordinators.store` implements the one to the cluster's metadata, `broker.transactions.markers` the one to the
partitions that this broker leads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_protocol.errors import ErrorCode

NO_LEADER: Final = -1
NO_PARTITION: Final = -2


class Marker(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """The leader epoch of the coordinator's partition: an older coordinator is fenced."""
    is_commit: bool
    transaction_version: int


WriteMarker: TypeAlias = "Callable[[str, int, Marker, Callable[[ErrorCode], None]], None]"
"""Writes a marker into a partition of this broker, and calls back when it is replicated, or with an error."""


class TransactionClusterView(Protocol):
    """The topics and brokers of the metadata image; every call costs O(1)."""

    def partition_count(self, name: str) -> int | None:
        """The number of partitions; None if the topic does not exist."""

    def has_partition(self, name: str, partition: int) -> bool:
        """Whether the topic exists and has the partition."""
        ...

    def marker_leader(self, name: str, partition: int) -> int:
        """The partition's live leader, or NO_LEADER or NO_PARTITION."""

    def create_internal_topic(self, name: str, context: RequestContext) -> None:
        """Start creating the topic; returns at once."""
