"""Foreign clients and tools against the node and, with the same tests, against Apache Kafka.

Every test takes the `cluster` fixture and runs twice: `kraftcluster` and `apache`. The second run proves what a test
expects. docs/compatibility.md shows the outcomes side by side (see conftest).
"""
