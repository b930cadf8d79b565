"""Bytes to requests to bytes, and the node as a whole.

Called by `runtime` and `cli.server_start`; still sans-IO: sockets, clocks and threads come in through `base.env.Env`.

- `connection`: one client connection. Frames out of lent buffers, requests handled many a read, responses in request
  order and corked into one write; limits and back-pressure.
- `listener`: what the connections of one listening socket share: handler table, limits, buffers, idle closing.
- `buffers`: the receive memory, lent by need, so that an idle connection owns none.
- `api_versions`: what a listener says about itself (KIP-35, KIP-511, KIP-584, KIP-896).
- `channel`: the client side, towards other nodes; `local_channel`: the same towards this process's own controller
  (a combined node talks to itself in the requests that separate nodes would use, KIP-500/590).
- `metrics`: counters under the names in which Kafka's metrics are usually scraped; `http`: where they are read.
- `node`: the composition root. Nothing else in the node knows all of its parts.

It must not decide anything about topics, replicas or the quorum: it carries.

Limits (each with the reason at its constant): request size (`socket.request.max.bytes`), connections in all and per
address, unanswered requests and unsent bytes of a connection, receive memory of half-received requests, idle time.
"""
