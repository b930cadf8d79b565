"""The writing side of the `kraft` data source: rows of a DataFrame become records of topics.

Each task has an idempotent producer of its own, so nothing that it sends arrives twice however often it is sent. A
task that Spark runs again is another producer, as with Spark's `kafka` sink: rows of the failed attempt may stay, and
the sink is at-least-once over attempts of tasks.

Columns: `value` (string or binary), and where wanted `key`, `topic` (or the option `topic`, which goes first),
`partition` and `headers`; others are left out. Without `partition` a record goes where Java's producer would put it: by
its key's murmur2, and without a key to one partition for a whole Arrow batch, so that batches are full.

`rows` turns columns into batches by partition and needs no Spark, nor does `options`; `kraft` has the writers.
"""
