"""The comparison with Apache Kafka on one machine; docs/benchmarks/protocol.md states its rules.

Parts:

- `scenarios`: each measures some rows of the page on a server that it starts itself. To add rows, add a file;
- `runs`: rows and scenarios (`row`, `registry`), and a run (`runner`, `journal`), which draws the order from a seed and
  appends every sample to an append-only file;
- `servers`: nodes and clusters of this project, of Kafka, and of variants of both (`server.Server`);
- `clients`: the load generators, also those in C, and hostile clients;
- `report`: the page, made only from the files of runs;
- `measurements`: programs that also run alone, such as `python -m bench.measurements.compaction`.

`python -m bench` is the command line.
"""
