"""The broker's coordinators: shared state of clients, stored in the log of an internal topic.

A coordinator owns the partitions of one internal topic that its broker leads: `group` the partitions of
`__consumer_offsets`, `transaction` the partitions of `__transaction_state`. Both match names with `regex`.
`group_settings` has the settings of groups that may change at run time. A key (group id, transactional id) belongs to
the partition that `partitioning.partition_for` returns, and the leader of that partition coordinates the key. All state
of a partition can be rebuilt from its log. After an election it is read back in slices; until then the answer to
requests is COORDINATOR_LOAD_IN_PROGRESS. On resignation it is dropped, and waiting requests get NOT_COORDINATOR.

The rule of every coordinator: **write, then apply, then answer after commit.** `runtime` keeps it for all: it loads
and drops the state of partitions, appends the records of operations, replays them, and answers when the high watermark
has passed them. A coordinator is a state machine over it, which defines the meaning of its records.

Called by: `broker.broker` (handler table, deleted topics) and `leadership` (elections). Reads and writes only through
`runtime.seams` (log of a partition) and `group.seams` (topics of the cluster); `store` implements these on the broker's
replica manager and metadata image. This package must not open files, read clocks, start threads, or know sockets.

Sources: KIP-394 (member id required), KIP-345 (static members), KIP-429 (cooperative rebalancing: no work for the
broker), KIP-559, KIP-699. Also KIP-709 (batched offset fetch), KIP-211 and KIP-496 (expiry and deletion of offsets),
KIP-848 (types of groups, topic ids).
"""
