"""Classic consumer groups and committed offsets, kept in `__consumer_offsets` in Apache Kafka 4.3.1's format.

What is where:
- `coordinator` takes requests and events and finds the shard; `locate` answers FindCoordinator;
- `shard` is one partition's state with its writes; `loader` reads it back; `records` is its stored form;
- `classic` and `member` are the group as data; `membership` the requests of members; `rebalance` the way from one
  generation to the next, with all time-outs; `subscription` reads which topics members consume;
- `offset_api` and `commits` are the requests about offsets, `offsets` their table, `expiry` their end;
- `admin` lists, describes and deletes groups; `seams` says what is needed of the broker.

Must not: write to a partition that is not led here, answer before what it says is committed, keep a request
unanswered for longer than the member's own timeouts, look into assignments (that is the clients' protocol; that the
cooperative one works needs nothing here).

Bounds: members a group by `group.max.size`, unanswered requests one join and one sync a member, pending member ids
by their session timeout, unfinished writes by `offsets.commit.timeout.ms`.
"""
