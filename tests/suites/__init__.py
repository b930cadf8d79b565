"""Test suites that the projects of clients wrote for Apache Kafka, run against clusters of ours (or of Apache Kafka).

`python -m tests.suites` (`make suites`) fetches them from the registries of Go and npm, builds and runs them. Judged by
their own assertions; the known failures, with their reasons, are in `suites.KNOWN`. kafka-python's suite is a test of
`tests/compat`.

- `fetching`    sources from registries
- `clusters`    the clusters that the suites expect
- `securing`    TLS and SASL for these clusters
- `franz_go`, `sarama`, `librdkafka`    one suite each
- `results`     what a suite found
"""
