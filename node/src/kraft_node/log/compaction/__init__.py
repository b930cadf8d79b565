"""Log compaction (`cleanup.policy=compact`): only the latest record of each key stays (KIP-58, KIP-354, KIP-534).

| file | question it answers |
|-|-|
| `choice` | the dirty part of a log, and whether it may be compacted now |
| `key_map` | the position of the latest record of each key in the dirty part |
| `transactions` | batches of aborted transactions, and markers that are no longer needed |
| `batch_filter` | the remaining part of one batch |
| `segment_reader` | the next slice of a file, in whole batches |
| `new_segment` | the segment that a pass writes, until it replaces old segments |
| `cleaning` | one pass over one log: read keys, write new segments, swap them in |
| `cleaner` | the choice of the next log, the rate, and the figures of finished passes |

Offsets, sequence numbers and leader epochs do not change. A pass runs in a lane, in pieces of a millisecond or less.
Between two pieces it checks on the event loop that the segments are unchanged.
"""
