"""Fetching: what a session remembers (KIP-227), what a response holds, and who waits for more.

| file | question it answers |
|-|-|
| `session` | which partitions does this consumer follow, and which of them may have something new |
| `reader` | what do these partitions answer now |
| `waiting` | a fetch that has not enough yet: until when, and what wakes it |

Cost is that of what changed. A session keeps its partitions in two groups: `ready` ones may have something to say, the
others have been read up to their end and are watched. An append moves the watching partitions of its readers back to
`ready` (once: a second append finds nobody watching), so an incremental fetch of a session over ten thousand
partitions touches those few that moved. Kafka's own purgatory and sessions walk all of them.
"""
