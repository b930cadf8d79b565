"""The engine below all coordinators: one internal topic's partitions as replicated state machines.

The files:
- `machine` has the interface that a coordinator implements (`StateMachine`) and the result of its operations
  (`PlannedWrite`);
- `engine` has `Runtime`: topic and partition -> shard; it follows the leadership, and runs operations by key;
- `shard` is one led partition: its state machine, its phase, its writes that are not committed yet;
- `batch` collects records of several operations; `loader` reads a log back; `timers` die with their shard;
- `failures` translates errors of the log for clients; `measures` is for metrics;
- `seams` is the interface to the log, which `coordinators.store` implements on the broker.

An operation runs at once, against a state that includes everything appended before it. It returns records and a
response. Then:
1. the records are encoded, and the shard checks that the log would accept them (`PartitionLogs.room`);
2. they are appended as one batch at the shard's leader epoch, or collected for one (`append.linger.ms`). The records of
   one operation are never split over batches;
3. the state machine replays them;
4. `done` is called when the high watermark has passed them. An operation without records waits for earlier records.

A refused append leaves the state untouched. If collected records cannot be appended after all, which `room` makes rare,
their operations fail, and the shard is loaded again from its log.

This package must not know what the records mean, open files, read clocks except through `base.env`, or answer clients.
"""
