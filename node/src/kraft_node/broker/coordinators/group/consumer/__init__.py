"""Consumer groups of KIP-848: the broker assigns partitions, and each member moves to its target by itself.

There are three epochs. The group's epoch moves if a subscription or a topic changes. The target's epoch is the group's
epoch for which the target was computed. A member's epoch is the epoch of the target that the member has reached. The
order in a heartbeat: the subscription changes, the group's epoch moves, the target is computed, the member is
reconciled.

The files:
- `api` takes the requests; `membership` runs them on a shard, with `sessions` for the time-outs;
- `heartbeat` and `leaving` plan the records of an operation and the response; `rules` checks requests;
- `group` and `member` are the state; `changes` is its stored form, `describe` its form for administrators;
- `targets` runs the `assignors`; `reconcile` moves one member towards its target;
- `own_targets` runs own assignors in a thread;
- `topic_hashes` (with `xxh3`) detects changed topics;
- `classic_members` are members of the classic protocol, `embedded` is what they exchange; `migration` turns groups
  of one type into the other;
- `patterns` resolves regular expressions, in the language of `coordinators.regex`;
- `services` has what all groups of a broker share.

The laws: a partition is never assigned to a member while another member may use it. The whole state can be rebuilt
from the records. An operation that the log refuses changes nothing.

Limits: members by `group.consumer.max.size`. The time of an expression is linear in the topic's name. The expressions
of a group are resolved every ten seconds at most.
"""
