"""The comparison with Apache Kafka on one machine; docs/benchmarks/protocol.md states its rules.

Four parts, each with one task:

- a `row.Row` is a line of the page; a `row.Scenario` measures some rows on a server that it starts itself. Scenarios
  are files in `bench.scenarios`, found by `registry`; to add rows, add a file;
- a `server.Server` starts nodes and clusters of ours, of Kafka, and of variants of both;
- a run (`runner`, `journal`) draws the order from a seed and adds every sample to a file that is never rewritten;
- the page (`page`, `picture`, `intervals`) is made from the files of runs alone.

`python -m bench` is the command line. `bench.codec`, `bench.image`, `bench.hostile` and `bench.compaction` also run
alone; `bench.pipeline*` measure the pipeline.
"""
