"""`KafkaTable`: topics to Delta, Iceberg or Parquet tables, each record exactly once.

The table needs no separate checkpoint, because its own transactions hold the position. Each batch is one commit with
its files, its number and the position after it. The position (`sources.positions.Position`) has offsets with the ids
of the cluster and the topics. A starting writer reads the last commit and continues there. So a process that dies has
either committed a batch or has not. The next start removes its uncommitted files, which are recorded before they are
written (`stores.intents`). If two writers run on one table, the later writer claims it by a transaction (its epoch).
The earlier writer can no longer commit and ends, so files of earlier epochs can be removed safely.

Records that cannot become rows go to a table of dead letters, with their bytes, position and reason. It is committed
first and stores where its batch ended. If a runner finds it one batch ahead, it repeats exactly that batch.

- `specs`: the YAML with defaults and checks, partition columns, many tables of one specification (`routes`).
- `values`: bytes to columns, by the parsers in `formats`; `errors`: failures; `schemas`: growth of columns.
- `engines`: where tasks run (Spark, or this process). `tasks`: one range of offsets to Parquet files, on an executor.
  `feeds`: the interface between engine and runner. `streaming`: the query of Structured Streaming on Spark. `plans`:
  offsets of the next batch, live or backfill. `transforms`: a SELECT over a batch.
- `bykey`: rows by key, gathered and merged by tasks.
- `stores`: files by URI; the interface of a table (`committer`) and its implementations, with `iceberg`. `intents`:
  records of files before they are written. `opening`: opens the table of a spec.
- `losses`: records that topics lost. `repeats`: repeated batches.
- `runner`: writes and commits batches. `maintenance`: status, compaction, vacuum, reset; `caretaker` runs it beside
  batches. `replay`: dead letters to rows.
- `fleet`: runs many tables of one specification. `status_server`: status and metrics over HTTP.

Records do not pass through the driver or Spark's JVM. A task fetches, decodes and writes Arrow columns in its own
Python process and reports files. Only `engines.engine`, `engines.streaming` and `engines.transforms` import Spark.
"""
