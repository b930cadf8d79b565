"""`KafkaMetadataArchive`: the metadata log (KIP-631) and its snapshots (KIP-630) as tables, and what they tell.

A cluster forgets: its metadata log is trimmed behind a snapshot. An archive keeps every change with its offset, time
and controller epoch, and can say what the cluster was like at any of them.

- `schema`: the records as data; `generic`: any one record to a mapping, the decoder that is right and slow.
- `changes`: batches to rows, partitions by the shape of their records, a million of them a second and more.
- `files`: segments and snapshots of a directory in order; `live`: the same from the controllers, up to the high
  watermark.
- `state`: rows of changes to the state after them, partitions in columns.
- `tables`: changes appended as transactions of KafkaTable's committers, and the state as tables of its own.
- `spread`: the same by tasks, a file of the log or of the archive each, for what is large.
- `run`: one run of an archive, and the state at an offset or a time; `spec`: its YAML.
- `health`: what happened to partitions, brokers and controllers; `skew`: how evenly load lies; `report`: both as a
  page.
- `plan`: a reassignment that levels the cluster with few moves; `sizes`: the bytes that it may go by.

Called by `cli.meta`. What is small works in one process, without Spark: NumPy decodes, a second thread writes. Must not
import the node or Spark: what it reads is held against the node's codec, Apache Kafka's tools and brokers in tests.
"""
