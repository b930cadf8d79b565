"""Replication between brokers: following other leaders, and leading with followers (KIP-101, -279, -320, -497, -903).

| file | question it answers |
|-|-|
| `fetchers` | From which leader is each followed partition fetched? |
| `fetcher` | For one leader: what does the next fetch request name, and what happens with the response? |
| `taking` | In which parts are the batches of a response appended? |
| `truncation` | Where do this log and the leader's diverge, and what is truncated (KIP-279)? |
| `out_of_range` | What if the leader's log ends before this log, or starts after it? |
| `cluster` | Which brokers are alive, and in which broker epoch? |
| `isr_changes` | Which ISR proposals are sent to the controller (AlterPartition)? |
| `throttle` | How fast may data be sent to and fetched by replicas that catch up? |
| `racks` | Which replica is nearest to a consumer (KIP-392)? |

The broker uses `Replication` (in `replication`); `ReplicaManager` reports every partition to it. This package must not
decide which replica leads (the controller decides) or which replicas are in sync (`partition.leadership` decides).

Followers append the leader's batches byte for byte; they check only the checksums. A fetch starts at the end of the
follower's log and names the epoch of the last record there. If the leader's log has another epoch there, the leader
responds with the offset where the logs diverge, and the follower truncates its log. Two other truncations exist. Logs
without epochs are truncated to the high watermark. `out_of_range` handles leaders with a log that ends before the
follower's.
"""

from kraft_node.broker.replication.replication import Replication

__all__ = ["Replication"]
