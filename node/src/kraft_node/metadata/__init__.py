"""The cluster's metadata on every node: the result of the records of the metadata log.

A **record** (KIP-631) is one fact in the log: a topic was created, a partition got another leader, a broker was fenced.
An **image** is the result of all committed records up to some offset. There is one `MetadataImage` per process, which
`kinds` changes in place; a combined controller and broker share it. A `MetadataDelta` holds the changes of a run of
records, so that a broker's work is proportional to the change. The active controller plans against an `Overlay`: the
same reading interface over the committed image plus the appended, uncommitted records. If leadership is lost, the
overlay is dropped; the image below was never wrong.

| file | question it answers |
|-|-|
| `features` | which `metadata.version` levels and other features exist |
| `partitions` | how a topic stores its partitions in a few bytes each |
| `brokers` | the data of a registered broker or controller |
| `sections` | keyed cells with copy-on-write for snapshots and with change tracking for deltas |
| `topics` | topics by name and id, and their partitions |
| `kinds` | the effects of each kind of record, in every part of the node; the only dispatch on it |
| `store` | the parts that records write: the common base of image and overlay |
| `image`, `overlay`, `delta` | the three things described above |
| `loader` | applies committed records, holds back open metadata transactions (KIP-868), calls the publishers |
| `snapshot` | an image as records, in slices, while the image continues to change (KIP-630) |
| `snapshot_writer`, `log_batches` | writing a snapshot file between other work; records to batches and back |
| `bulk` | partitions of a snapshot to rows and back, without objects |
| `prepared` | records before their append: encoded, with their future offsets |
| `own_fields` | fields that our nodes add to requests to the active controller |
| `records` | the frame around each record in the log |
| `client_quotas` | the quota that applies to a client (KIP-13, KIP-55) |

The raft driver feeds `loader`; controller and broker read. This package must not do I/O, read a clock, or know the
quorum's leader. Values of the reading interface are immutable or must be treated as immutable: only records change
metadata.

KIPs: 631 (records, controller), 630 (snapshots), 516 (topic ids), 584 and 778 (features, metadata.version), 858
(directories), 868 (metadata transactions), 966 (eligible leader replicas).
"""
