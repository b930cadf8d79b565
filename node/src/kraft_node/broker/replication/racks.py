"""Which replica a consumer should read from (KIP-392, `replica.selector.class`): a replica in its rack, if any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kraft_node.broker.metadata_cache import MetadataCache
    from kraft_node.partition.partition import Partition

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER: Final = -1


class RackAware:
    """The most caught-up replica in the consumer's rack; the leader if it is in that rack, or if the rack has no
    replica."""

    __slots__ = ("_metadata",)

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def __call__(self, partition: Partition, offset: int, rack: str) -> int:
        """The broker to read from, -1 for the leader. Called on the leader for a consumer at `offset`."""
        lead = partition.lead
        metadata = self._metadata
        if lead is None or metadata.rack(partition.node_id) == rack:
            return LEADER
        there = [
            (follower.end_offset, follower.caught_up_ms, follower.broker_id)
            for follower in lead.followers.values()
            if -1 < follower.start_offset <= offset <= follower.end_offset
            and metadata.is_live(follower.broker_id)
            and metadata.rack(follower.broker_id) == rack
        ]
        return max(there)[2] if there else LEADER
