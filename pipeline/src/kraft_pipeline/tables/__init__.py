"""`KafkaTable`: topics to Delta, Iceberg or Parquet tables, each record exactly once.

There is no checkpoint beside the table. What has been read is part of the table's own transactions: each batch is one
commit that holds its files, its number and the position after it (`sources.positions.Position`: offsets with the ids of
the cluster and the topics). Whoever starts reads the last commit and goes on there, so a process that dies at any point
has either committed a batch or has not begun it; files that it wrote without committing are swept at the next start,
told by their names. Of two that run at once on one table the later one has claimed it by a transaction (its epoch): the
other commits nothing from then on and ends, and only then the files are swept that are of an earlier epoch.

Records that do not become rows go to a table of dead letters beside it, with their bytes, position and the reason. It
is committed first and says where its batch ended; a runner that finds it a batch ahead repeats exactly that batch.

- `spec`: the YAML; `settings` of each part with its default and what is wrong with it.
- `values`: bytes to columns (raw, `jsonvalues` with `jsonsingle`, `avrovalues` with `avrotypes` and `registry`);
  `errors`: what a failure is; `schemas`: how columns grow; `partitions`: columns that rows are filed under; `bykey`:
  rows by key.
- `tasks`: one range of offsets to Parquet files, on an executor; `engine`: where tasks run (Spark, or this process);
  `feeds`: what an engine asks for batches; `streaming`: the query of Structured Streaming that does so on Spark.
- `bykey`: rows by key, put together and merged by tasks; `transforms`: a SELECT over a batch.
- `storage`: files by URI. `committer`: what a table must be able to do; `delta`, `iceberg` (its `path`: without a
  catalog), `parquet`: those who can.
- `opening`: from a spec to the table. `plans`: which records come next, of the live stream or of what came before it.
- `runner`: has batches written and commits them. `maintenance`: care, status, reset; `caretaker`: care beside batches.
- `fleet`: many tables of one specification.
- `served`: what a running table tells over HTTP.

Nothing here moves records through the driver or through Spark's JVM: a task fetches, decodes and writes Arrow columns
in its own process and reports files. Only `engine`, `streaming` and `transforms` import Spark.
"""
