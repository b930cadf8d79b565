"""The broker's coordinators: shared state of clients, stored in the log of an internal topic.

A coordinator owns the partitions of one internal topic that its broker leads: `group` those of `__consumer_offsets`
(the transaction coordinator will own those of `__transaction_state`). A key (group id, transactional id) belongs to the
partition that `partitioning.partition_for` returns, and the leader of that partition coordinates the key. All state of
a partition can be rebuilt from its log. After an election it is read back in slices; until then the answer to requests
is COORDINATOR_LOAD_IN_PROGRESS. On resignation it is dropped, and waiting requests get NOT_COORDINATOR.

The rule of every coordinator: **write, then apply, then answer after commit.** An operation checks the request against
the written state, appends its records in one batch, applies them, and answers when the high watermark has passed them.
If the append fails, nothing has been applied, and the request gets the error.

Called by: `broker.broker` (handler table, leadership changes, deleted topics). Reads and writes only through
`group.seams` (log of a partition, topics of the cluster); `store` implements these on the broker's replica manager and
metadata image. This package must not open files, read clocks, start threads, or know sockets.

Sources: KIP-394 (member id required), KIP-345 (static members), KIP-429 (cooperative rebalancing: nothing to do for the
broker), KIP-559, KIP-699, KIP-709 (batched offset fetch), KIP-211 and KIP-496 (expiry and deletion of offsets), KIP-848
(types of groups, topic ids).
"""
