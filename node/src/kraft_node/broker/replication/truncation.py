"""Where a follower's log and the leader's part, and what to cut (KIP-279, KIP-595's divergence in Fetch)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft_node.partition.partition import Partition

log = logging.getLogger(__name__)


def parting_offset(partition: Partition, leader_epoch: int, leader_end: int) -> tuple[int, bool]:
    """To which offset to cut the log, when the leader's log ends epoch `leader_epoch` at `leader_end`; and whether what
    is left then is the leader's as well.

    That epoch is the largest at or below our last one that the leader knows. Where our log does not know it, it is cut
    where the next lower one of ours ends, and the leader is asked again with that.
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
            "%s-%d is truncated to %d, below its high watermark %d",
            partition.topic, partition.index, offset, own.high_watermark,
        )  # fmt: skip
    elif offset < own.end_offset:
        log.info("%s-%d is truncated from %d to %d", partition.topic, partition.index, own.end_offset, offset)
    own.truncate_to(offset)


def before_first_fetch(partition: Partition) -> None:
    """A log that knows no epoch cannot be compared with the leader's: only what is replicated is kept (KIP-101)."""
    own = partition.log
    if own.leader_epochs.latest_epoch < 0 and own.end_offset > own.high_watermark:
        cut(partition, own.high_watermark)
