"""Connections, requests and responses, and the node as a whole.

`runtime` and `cli.server_start` call it. It is sans-IO: sockets, clocks and threads come from `base.env.Env`.

- `connection`: one client connection. Splits buffers into frames, handles all requests of a read, sends responses in
  request order in one write; limits and back-pressure.
- `listener`: the shared parts of the connections of one listening socket: handler table, limits, buffers, idle closing.
- `buffers`: receive memory that is lent when needed, so that an idle connection has none.
- `api_versions`: the answer to ApiVersions (KIP-35, KIP-511, KIP-584, KIP-896).
- `channel`: the client side, towards other nodes; `local_channel`: the same towards this process's own controller (a
  combined node sends itself the requests that separate nodes would use, KIP-500/590).
- `metrics`: counters under the names in which Kafka's metrics are usually scraped; `http`: serves them.
- `node`: the composition root. No other module knows all parts of the node.

This package must not make decisions about topics, replicas or the quorum.

Limits (each constant has its reason): request size (`socket.request.max.bytes`), connections in total and per address,
unanswered requests and unsent bytes of a connection, receive memory of incomplete requests, idle time.
"""
