"""Fetching: sessions (KIP-227), reading, and waiting fetches.

| file | question it answers |
|-|-|
| `session` | the partitions of a reader, and those that may have news |
| `evictable` | which session makes room for another |
| `reader` | the present answers of these partitions |
| `waiting` | a fetch without enough data: its deadline, and what wakes it |
| `large` | fetches of very many partitions, in steps |
| `cold` | data that is not in memory: lanes read it first |

The cost is proportional to the changes. A session keeps its partitions in two groups. Partitions in `ready` may have
news; the others were read to their end and are watched. An append moves watched partitions of its readers back to
`ready` (once: a second append finds no watchers). So an incremental fetch of a session with ten thousand partitions
touches only the few that changed. Kafka's purgatory and sessions iterate over all of them.
"""
