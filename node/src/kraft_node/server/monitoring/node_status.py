"""The process's configuration and metadata counts, for operators (`/status`)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kraft_node.server.parts import NodeParts

REVISION_KEY: Final = "config.revision"
"""A text that the author of the configuration file sets; the node does not interpret it."""


def node_status(node: NodeParts) -> str:
    """One JSON object.

    `voters` are the configured voters (kraft.version 0), empty for a dynamic quorum. `topics` and `partitions` count
    the metadata up to `offset`, including objects that a client may not see; they are missing until the node has an
    image. `zkMigrationState` is the state in the metadata log (ZkMigrationStateRecord). `migration` describes a
    controller that migrates from ZooKeeper. `migrationNeedsKey` is why an active controller without the key of a
    migration must have it; it is missing otherwise.
    """
    config, raft = node.config, node.raft
    found: dict[str, Any] = {
        "nodeId": config.node_id,
        "clusterId": None if node.storage is None else node.storage.cluster_id,
        "roles": sorted(config.roles),
        "voters": [voter.node_id for voter in config.voters],
        "configRevision": config.texts.get(REVISION_KEY, ""),
        "authorizer": node.authorizer is not None,
    }
    if raft is not None and node.raft_started:
        topics = raft.image.topics
        found |= {"offset": raft.image.offset, "topics": len(topics), "partitions": topics.partition_count}
        found["zkMigrationState"] = raft.image.zk_migration_state
    if node.controller is not None and node.controller.migration.missing_key is not None:
        found["migrationNeedsKey"] = node.controller.migration.missing_key
    if node.migration is not None and raft is not None and node.raft_started:
        found["migration"] = node.migration.status()
    return json.dumps(found) + "\n"
