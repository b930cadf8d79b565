"""Where a follower's log and the leader's diverge, and how far to truncate (KIP-279, KIP-595's divergence in Fetch)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft_node.partition.partition import Partition

log = logging.getLogger(__name__)


def parting_offset(partition: Partition, leader_epoch: int, leader_end: int) -> tuple[int, bool]:
    """The offset to truncate to if the leader's log ends epoch `leader_epoch` at `leader_end`, and whether the rest
    then matches the leader's log.

    That epoch is the largest at or below our last epoch that the leader knows. If our log does not have it, the log is
    truncated to the end of our next lower epoch. Then the request is sent again with that epoch.
    """
    own = partition.log
    found = partition.epoch_end(leader_epoch)
    if found.epoch < 0 or found.end_offset < 0:
        return min(leader_end, own.end_offset), False
    if found.epoch != leader_epoch:
        return min(found.end_offset, own.end_offset), False
    return min(found.end_offset, leader_end, own.end_offset), True


def cut(partition: Partition, offset: int) -> None:
    """Truncate the log to `offset`. Raises KafkaError KAFKA_STORAGE_ERROR."""
    own = partition.log
    if offset < own.high_watermark:
        log.warning(
            "log is truncated below its high watermark partition=%s-%d offset=%d high_watermark=%d",
            partition.topic, partition.index, offset, own.high_watermark,
        )  # fmt: skip
    elif offset < own.end_offset:
        log.info(
            "log is truncated partition=%s-%d former_end=%d offset=%d",
            partition.topic,
            partition.index,
            own.end_offset,
            offset,
        )
    own.truncate_to(offset)


def before_first_fetch(partition: Partition) -> None:
    """Truncate a log without epochs to its high watermark: it cannot be compared with the leader's log (KIP-101)."""
    own = partition.log
    if own.leader_epochs.latest_epoch < 0 and own.end_offset > own.high_watermark:
        cut(partition, own.high_watermark)
