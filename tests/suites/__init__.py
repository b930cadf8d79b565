"""Test suites that the projects of clients wrote for Apache Kafka, run against clusters of ours (or of Apache Kafka).

`python -m tests.suites` (`make suites`) fetches them from the registries of Go, npm and Rust, builds and runs them.
Judged by their own assertions; each suite's module has its known failures, with reasons, in `KNOWN`. kafka-python's
suite is a test of `tests/compat`.

- `fetching`    sources from registries
- `clusters`    the clusters that the suites expect
- `securing`    TLS and SASL for these clusters
- `franz_go`, `sarama`, `librdkafka`, `confluent_go`, `rskafka`, `watermill`,
  `kafka_go`    the suites of one project each
- `results`     what a suite found
"""
