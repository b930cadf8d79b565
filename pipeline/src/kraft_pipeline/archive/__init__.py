"""`KafkaMetadataArchive`: the metadata log (KIP-631) and its snapshots (KIP-630) as tables, with reports on them.

A cluster trims its metadata log behind a snapshot. An archive keeps every change with its offset, time and controller
epoch, and can compute the state of the cluster at any of them.

- `schema`: the records as data; `generic`: decodes any record to a mapping, slowly; the reference for `changes`.
- `changes`: batches to rows; partition records by their shape, more than a million per second.
- `files`: segments and snapshots of a directory in order; `live`: the same from the controllers, up to the high
  watermark.
- `state`: rows of changes to the state after them, partitions in columns.
- `tables`: changes appended as transactions of KafkaTable's committers, and the state as tables of its own.
- `spread`: the same in tasks, one for each file of a large log or archive.
- `run`: a run of an archive, and the state at an offset or a time; `spec`: its YAML.
- `reconcile`: where an archive diverges from the log. `published`: the state for readers. `errors`: its errors.
- `health`: history of partitions, brokers and controllers; `skew`: distribution of load; `report`: both as a
  page.
- `frames`: changes and state as DataFrames of Spark.
- `plan`: a reassignment that balances the cluster with few moves; `sizes`: bytes of partitions for it.

Called by `cli.meta`. Small archives need a single process without Spark: NumPy decodes, a second thread writes. No
module imports the node, and only `frames` imports Spark. Tests compare the package with the node's codec, Apache
Kafka's tools and brokers.
"""
