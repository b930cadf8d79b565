"""Foreign clients and tools against the node and, with the same tests, against Apache Kafka.

Every test takes the `cluster` fixture and runs twice: `kraftcluster` and `apache`. What a test expects is thereby
checked against the real thing first; the outcomes side by side are docs/compatibility.md (see conftest).
"""
