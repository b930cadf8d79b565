"""Logs on disk in Kafka's files: segments and their indexes, producer state, leader epochs, log directories.

| file | question it answers |
|-|-|
| `log`, `results` | one partition: append, read, where it begins, ends and is stable |
| `appending` | the careful way in: what is not one plain batch, what a follower has fetched |
| `validate` | may this batch be stored as it came, and if not, as what |
| `segment`, `scan`, `index`, `txn_index` | one segment file and its indexes |
| `opening`, `walking`, `producer_replay` | what is in a directory after a clean or unclean stop |
| `recovery`, `timestamps` | recovery and look-ups by time in lanes |
| `trimming`, `lookup`, `flushing` | retention and truncation; reads and searches; fsync |
| `compaction` | compaction, in slices beside everything else (KIP-58, KIP-534) |
| `epochs`, `producers`, `producer_snapshot` | leader epochs (KIP-101), idempotence and transactions (KIP-98) |
| `housekeeping`, `closing` | what is done to all logs from time to time; the clean stop |
| `manager`, `directory`, `checkpoints`, `meta_properties` | all logs in the `log.dirs` of a node (KIP-112, KIP-858) |
| `noting`, `withdrawals` | offsets of open logs into the checkpoints; logs that must not be used any more |
| `metadata_log`, `quorum_state`, `bootstrap` | `__cluster_metadata-0` on disk (KIP-595, KIP-630) |
| `files` | open files, bounded; what happens when a directory dies |

Who calls it: `partition` and `broker` through `manager.LogManager`, the raft driver through `metadata_log.MetadataLog`.

What it must not do: decode records on the way of a produce or fetch (except where a topic's configuration cannot be
honoured otherwise, see `validate`), block the event loop with an fsync (except where `flush.messages` asks for one
before the answer, and for the few files of directory management), retry after a failed fsync, or touch the disk past
`base.env.Disk`.

Durability. Below the recovery point everything is on stable storage: batches, their index entries, leader epochs,
producer snapshots. Recovery walks only what lies beyond. What is torn there is cut off with a log line; what is wrong
below it quarantines the log, naming file and offset (`errors.LogDirDamaged`). An OSError from a write or fsync ends the
directory (`errors.LogDirFailure`): its logs answer KAFKA_STORAGE_ERROR until the node is started again. A lack of
descriptors ends nothing.
"""
