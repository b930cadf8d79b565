"""The replicas that a broker holds: which partitions it leads, what of them may be read, who waits for more.

| file | question it answers |
|-|-|
| `partition` | one replica: may this request be served, up to where may be read, when is an append acknowledged |
| `leadership` | who follows it, who is in sync, how far all of them are; proposals to the controller |
| `followers` | one follower: how far, and since when it has been behind |
| `surroundings` | what a partition asks of its broker |
| `manager` | all replicas of the broker: found by name or topic id, made on demand, dropped with their topic |
| `storage` | in which directory a log is, and whose log it is |

A partition that nobody has asked for costs nothing but its row in the metadata image: `ReplicaManager` makes the
`Partition` and opens its log at the first request, so that a broker with ten thousand idle partitions starts at once.
Those with other replicas are opened unasked, some at a time: followers fetch, leaders watch over their ISR.

Who calls it: the broker's handlers and coordinators, and the broker when committed metadata changes. It must not know
requests or responses, sessions or timers. Errors are `KafkaError` with the code that the client is to see.

High watermark (KIP-101, KIP-279): the offset below which every member of the ISR has every record. With this broker
as the only replica it is the log's end offset right after each append; otherwise `leadership` computes it from what
followers ask for.

Leader epochs (KIP-320): each request may say which leader epoch it believes in; an older one is fenced, a newer one
means that this broker's metadata lags. Fetches may also name the epoch of the last record that they hold (KIP-595's
truncation on fetch); where the log disagrees the answer is the offset at which the two parted.
"""
