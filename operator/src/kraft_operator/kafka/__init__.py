"""A client for the administrative part of Kafka's protocol, for one cluster.

`observe.kafka`, `apply.kafka` and `apply.topics` call it. It does not depend on Kubernetes, on plans or on the other
products (docs/decisions/0005 has the reasons and the cost).

- `schemas` the requests and responses, each in one version, as short texts; facts of Apache Kafka's definitions
- `codec`   compiles such a text to functions that write and read messages; messages are plain dictionaries
- `client`  connections to nodes, one request at a time on each; the only module with sockets

It makes no decisions and does not retry, because the next pass asks again anyway.
"""
