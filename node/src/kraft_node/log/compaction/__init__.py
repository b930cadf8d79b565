"""Log compaction (`cleanup.policy=compact`): of each key only the latest record stays (KIP-58, KIP-354, KIP-534).

| file | question it answers |
|-|-|
| `choice` | what of a log is dirty, and may it be compacted now |
| `key_map` | where the latest record of each key in the dirty part lies |
| `transactions` | which batches belong to aborted transactions, and which markers are needed no more |
| `batch_filter` | what stays of one batch |
| `cleaning` | one pass over one log: read keys, write segments anew, put them in place |
| `cleaner` | which log is next, how fast, and what is known of the passes that have ended |

Offsets, sequence numbers and leader epochs stay. A pass is work for a lane, in pieces of a millisecond or less. Between
two pieces it looks on the event loop whether the segments are still the same.
"""
