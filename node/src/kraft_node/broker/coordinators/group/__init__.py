"""Groups of both protocols and committed offsets, stored in `__consumer_offsets` in Apache Kafka 4.3.1's format.

The files:
- `coordinator` takes requests and events and finds the shard; `locate` answers FindCoordinator;
- `shard` is the state machine of one partition, over `coordinators.runtime`, and `shard_state` its groups, for the
  parts of the machine; `records` is its stored form;
- `consumer` is the package of the groups of KIP-848;
- `classic` and `member` are a classic group as data; `membership` handles requests of members; `rebalance` moves a
  group from one generation to the next, with all time-outs; `subscription` reads the topics that members consume;
- `offset_api` and `commits` handle requests about offsets, `offsets` is their table, `expiry` removes them;
- `txn_commits` handles offsets that are committed with a transaction;
- `config` has the settings;
- `admin` lists, describes and deletes groups; `seams` is the interface to the broker.

This package must not write to a partition that is not led here, answer before the commit, keep a request unanswered for
longer than the member's own time-outs, or interpret the assignments of classic groups (they belong to the clients'
protocol, also for cooperative rebalancing).

Limits: members per group by `group.max.size`; one unanswered join and one unanswered sync per member; pending member
ids by their session time-out; unfinished writes by `offsets.commit.timeout.ms`.
"""
