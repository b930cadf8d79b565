"""The cluster's metadata as every node holds it: what the records of the metadata log add up to.

A **record** (KIP-631) is one fact in the log: a topic was created, a partition got another leader, a broker was fenced.
An **image** is what all committed records up to some offset amount to. There is one `MetadataImage` a process, changed
in place by `kinds`; a combined controller and broker share it. What one run of records changed is a
`MetadataDelta`, handed to brokers so that their work is in proportion to the change. The active controller plans
against an `Overlay`: the same reading interface over the committed image plus the records it has appended and not yet
seen committed; losing leadership throws the overlay away, and the image below was never wrong.

| file | question it answers |
|-|-|
| `features` | which `metadata.version` levels and other features exist |
| `partitions` | how a topic keeps its partitions in a few bytes each |
| `brokers` | what is known of a registered broker or controller |
| `sections` | keyed cells with copy-on-write for snapshots and with change tracking for deltas |
| `topics` | topics by name and id, and their partitions |
| `kinds` | what each kind of record does, in every place that asks; the only dispatch on it |
| `store` | the parts that records write: what image and overlay have in common |
| `image`, `overlay`, `delta` | the three things described above |
| `loader` | applies committed records, holds back open metadata transactions (KIP-868), tells the publishers |
| `snapshot` | an image as records again, in slices, while the image goes on changing (KIP-630) |
| `snapshot_writer`, `log_batches` | the same into a file beside other work; records in and out of batches |
| `records` | the frame around each record in the log |

Who calls it: the raft driver feeds `loader`; controller and broker read. It must not do I/O, look at a clock, or know
who leads the quorum. Values handed out by the reading interface are immutable or must be treated so: whoever wants a
change writes a record.

KIPs: 631 (records, controller), 630 (snapshots), 516 (topic ids), 584 and 778 (features, metadata.version), 858
(directories), 868 (metadata transactions), 966 (eligible leader replicas).
"""
