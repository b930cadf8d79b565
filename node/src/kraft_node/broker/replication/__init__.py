"""Replication between brokers: following other leaders, and leading with followers (KIP-101, -279, -320, -497, -903).

| file | question it answers |
|-|-|
| `fetchers` | which leader is each followed partition fetched from |
| `fetcher` | one leader: what to ask it for next, what to do with its answer |
| `fetch_session` | what that leader remembers of earlier requests (KIP-227), so that a request costs what changed |
| `truncation` | where this log and the leader's part, and what to cut (KIP-279) |
| `out_of_range` | the leader's log does not reach to, or from, where this one ends |
| `cluster` | what partitions ask of their surroundings: who lives, in which incarnation |
| `isr_changes` | the leader's proposals on their way to the controller (AlterPartition) |
| `throttle` | how fast replicas that catch up may be sent and fetched |
| `racks` | which replica is nearest to a consumer (KIP-392) |

Who calls it: the broker, through `Replication`, which hears of every partition from `ReplicaManager`. It must not
decide who leads or who is in sync: the first the controller does, the second `partition.leadership`.

Followers take over the leader's batches byte for byte; only their checksums are looked at. A fetch asks for what begins
at the end of the log and names the epoch of the last record there; where the leader's log says otherwise it answers
where the two parted, and the follower cuts its log there. There is no other truncation, but for logs without any
epoch (cut to the high watermark) and for leaders whose log ends before ours or begins after (`out_of_range`).
"""

from kraft_node.broker.replication.replication import Replication

__all__ = ["Replication"]
