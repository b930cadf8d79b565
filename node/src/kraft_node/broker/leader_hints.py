"""The current leader in answers to requests that reached the wrong broker (KIP-951): Produce 10+, Fetch 16+."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraft_node.broker.metadata_cache import MetadataCache
    from kraft_node.partition.table import PartitionKey


def hint_at_leaders(
    metadata: MetadataCache, listener: str, failed: Iterable[tuple[PartitionKey, Any]], response: Any
) -> None:
    """Fill `current_leader` of each failed partition's row and the leaders' addresses of the response."""
    known = {node.node_id for node in response.node_endpoints}
    for key, row in failed:
        state = metadata.partition(*key)
        if state is None:
            continue
        row.current_leader = type(response).LeaderIdAndEpoch(state.leader, state.leader_epoch)
        endpoint = metadata.endpoint(state.leader, listener)
        if endpoint is not None and state.leader not in known:
            known.add(state.leader)
            node = type(response).NodeEndpoint(state.leader, endpoint.host, endpoint.port, metadata.rack(state.leader))
            response.node_endpoints.append(node)
