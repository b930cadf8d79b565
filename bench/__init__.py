"""The comparison with Apache Kafka on one machine; docs/benchmarks/protocol.md states its rules.

Parts:

- a `row.Row` is a line of the page; a `row.Scenario` measures some rows on a server that it starts itself. Scenarios
  are files in `bench.scenarios`, found by `registry`; to add rows, add a file;
- a `server.Server` starts nodes and clusters of this project, of Kafka, and of variants of both;
- a run (`runner`, `journal`) draws the order from a seed and appends every sample to an append-only file;
- the page (`page`, `picture`, `intervals`) is made only from the files of runs.

`python -m bench` is the command line. `bench.codec`, `bench.image`, `bench.hostile` and `bench.compaction` also run
alone; `bench.pipeline*` measure the pipeline.
"""
