"""The broker's coordinators: state that clients share, kept in the log of an internal topic.

A coordinator owns the partitions of one internal topic that its broker leads: `group` those of `__consumer_offsets`
(the transaction coordinator will own those of `__transaction_state`). A key (group id, transactional id) belongs to
the partition that `partitioning.partition_for` gives, and whoever leads that partition coordinates the key. All of
a partition's state can be rebuilt from its log: on election it is read back in slices, until then requests are
answered COORDINATOR_LOAD_IN_PROGRESS; on resignation it is dropped and whoever still waits is told NOT_COORDINATOR.

The rule every coordinator follows: **write, then apply, then answer after commit.** An operation checks the request
against what has been written so far, appends its records in one batch, applies them, and answers when the high
watermark has passed them. When the append fails nothing has been applied and the request gets the error.

Called by: `broker.broker` (handler table, leadership changes, deleted topics). Reads and writes only through
`group.seams` (log of a partition, topics of the cluster); `store` implements these on the broker's replica manager
and metadata image. Must not: open files, read clocks, start threads, know sockets.

Sources: KIP-394 (member id required), KIP-345 (static members), KIP-429 (cooperative rebalancing: nothing to do for
the broker), KIP-559, KIP-699, KIP-709 (batched offset fetch), KIP-211 and KIP-496 (expiry and deletion of offsets),
KIP-848 (types of groups, topic ids).
"""
