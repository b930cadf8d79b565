"""The runtime's interface to the logs of its topic. `coordinators.store` implements it on the replica manager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kraft_node.broker.coordinators.runtime.machine import StoredRecord, TransactionalProducer
    from kraft_protocol.buffers import Buffer


class PartitionLogs(Protocol):
    """The logs of one internal topic's partitions that this broker leads.

    Each method raises KafkaError NOT_LEADER_OR_FOLLOWER if this broker does not lead the partition.
    """

    def room(self, partition: int, leader_epoch: int) -> int:
        """The size in bytes up to which `append` would accept a batch now. Raises like `append`."""

    def append(
        self,
        partition: int,
        leader_epoch: int,
        records: Sequence[StoredRecord],
        now_ms: int,
        producer: TransactionalProducer | None = None,
    ) -> int:
        """Append `records` as one batch, all or nothing. Returns the offset of the first record.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER (also for another leader epoch), NOT_ENOUGH_REPLICAS,
        MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, KAFKA_STORAGE_ERROR.
        """

    def append_marker(
        self,
        partition: int,
        leader_epoch: int,
        producer: TransactionalProducer,
        now_ms: int,
        *,
        commit: bool,
        coordinator_epoch: int,
    ) -> int:
        """Append the marker that ends the producer's transaction. Returns its offset. Raises like `append`."""

    def start_offset(self, partition: int) -> int:
        """The start offset of the log."""

    def end_offset(self, partition: int) -> int:
        """The offset of the next record."""

    def high_watermark(self, partition: int) -> int:
        """Everything below it is committed."""

    def read(self, partition: int, offset: int, max_bytes: int) -> Buffer:
        """Whole batches from the batch that holds `offset` on, at least one batch; empty at the end. Raises
        KafkaError."""

    def when_committed(self, partition: int, offset: int, done: Callable[[], None], closed: Callable[[], None]) -> None:
        """Call `done` once when everything below `offset` is committed; never if leadership is lost before. Call
        `closed` instead if the log is closed: it is damaged, its directory has failed, or it is opened again."""
