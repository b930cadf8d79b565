"""Logs on disk in Kafka's files: segments and their indexes, producer state, leader epochs, log directories.

| file | question it answers |
|-|-|
| `log`, `results` | one partition: append, read, start, end and last stable offset |
| `appending` | the slow path of appends: everything but one plain batch; a follower's fetched batches |
| `runs` | a follower's appends of several batches with one write |
| `seams` | what the parts of a log need of it |
| `log_dir` | the shared parts of all logs of one log directory |
| `validate` | whether a batch may be stored unchanged, and otherwise in which form |
| `trimming`, `lookup`, `timestamps`, `flushing` | retention and truncation; reads and searches; fsync |
| `segments` | the files of one log, their indexes, and the limited number of open files |
| `recovery` | the state of a log after a clean or unclean stop; recovery in lanes |
| `producers` | idempotence and transactions (KIP-98): state, snapshots, replay |
| `checkpoints` | the small files: offsets, leader epochs (KIP-101), identities, quorum-state, bootstrap |
| `compaction` | compaction, in slices between other work (KIP-58, KIP-534) |
| `manager` | all logs in the `log.dirs` of a node (KIP-112, KIP-858): periodic work, moves, the clean stop |
| `resting` | what a partition holds while nobody uses it |
| `waiting` | what waits for the disk: flushes that `flush.messages` requires, appends when too much memory is dirty |
| `metadata_log` | `__cluster_metadata-0` on disk (KIP-595, KIP-630) |
| `config` | the topic configuration of a log |

Callers: `partition` and `broker` through `manager.log_manager.LogManager`, the raft driver through
`metadata_log.MetadataLog`.

This package must not decode records in a produce or fetch, unless a topic's configuration requires it (see
`validate`). It must not block the event loop with an fsync, except for the few files of directory management. It must
not retry a failed fsync, or use the disk except through `base.env.Disk`.

Durability. Below the recovery point everything is on stable storage: batches, their index entries, leader epochs,
producer snapshots. Recovery scans only the part above it. A torn tail there is truncated and logged. Damage below it
quarantines the log; the error names file and offset (`errors.LogDirDamaged`). An OSError from a write or fsync takes
the directory offline (`errors.LogDirFailure`): its logs answer KAFKA_STORAGE_ERROR until the node is restarted. A lack
of descriptors only delays work.
"""
