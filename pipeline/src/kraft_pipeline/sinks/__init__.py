"""The writing side of the `kraft` data source: rows of a DataFrame become records of topics.

Each task has its own idempotent producer, so retries do not repeat its records. If Spark runs a task again, that task
has another producer, as with Spark's `kafka` sink. Rows of the failed attempt may stay: over attempts of tasks, the
sink is at-least-once. With `kafka.transactional.id` it is exactly-once (`transactions`).

Columns: `value` (string or binary), and optionally `key`, `topic` (or the option `topic`, which takes precedence),
`partition` and `headers`; others are ignored. Without `partition`, a record goes to the partition that Java's producer
would choose: by murmur2 of its key. Records without a key go to one partition for a whole Arrow batch, so that batches
are full.

`rows` converts columns to batches by partition. Like `options`, it does not need Spark; `kraft` has the writers.
"""
