"""The replicas of a broker: leadership, readable offsets, and readers that wait for more.

| file | question it answers |
|-|-|
| `partition` | one replica: whether it may serve a request, how far it is readable, when an append is acknowledged |
| `leadership` | the followers, the ISR, the progress of each; proposals to the controller |
| `acknowledged`, `acks` | when records count as stored for their producer; the callbacks that wait for it |
| `watching` | readers that wait until more can be read |
| `isolation` | how far into the log a read may see |
| `listed_offsets`, `deleting` | ListOffsets and DeleteRecords on one replica |
| `followers` | one follower: its progress, and since when it lags |
| `surroundings` | the interface of a partition to its broker |
| `manager` | all replicas of the broker: found by name or topic id, made on demand, dropped with their topic |
| `table` | the partitions by topic name, topic id and number |
| `storage` | the directory of a log, and the topic that it belongs to |

An unused partition costs only its row in the metadata image. `ReplicaManager` makes the `Partition` and opens its log
at the first request, so a broker with ten thousand idle partitions starts at once. Partitions with other replicas are
opened without a request, some at a time: followers fetch, and leaders maintain their ISR.

Callers: the broker's handlers and coordinators, and the broker when committed metadata changes. This package must not
know requests or responses, sessions or timers. Errors are `KafkaError` with the code for the client.

High watermark (KIP-101, KIP-279): the offset below which every member of the ISR has every record. With this broker as
the only replica it is the log's end offset right after each append. Otherwise `leadership` computes it from the
followers' fetch offsets.

Leader epochs (KIP-320): a request may name the current leader epoch. An older epoch is fenced; a newer epoch means that
this broker's metadata lags. A fetch may also name the epoch of its last record (KIP-595, truncation on fetch). If the
log differs, the answer contains the offset where the logs diverge.
"""
