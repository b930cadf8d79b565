"""Kafka's protocol as far as an administrator of one cluster needs it, a client of our own.

Who calls it: `observe.kafka` and `apply.kafka`. It knows nothing of Kubernetes, of plans or of other products (what
this costs and why it is so: docs/decisions/0005).

- `schemas` the requests and responses, each in one version, as a short text; facts of Apache Kafka's definitions
- `codec`   such a text -> functions that write and read it; messages are plain dictionaries
- `client`  connections to nodes, one request at a time on each; the only place with sockets

It must not decide anything, and must not ask again by itself: who observes asks again in the next pass anyway.
"""
