"""Connections, requests and responses, and the node as a whole.

`runtime` and `cli.server_start` call it. It is sans-IO: sockets, clocks and threads come from `base.env.Env`.

- `connections`: the connections of clients. `connection` splits buffers into frames, handles all requests of a read,
  and sends responses in request order in one write. `listener` has the state that the connections of one listening
  socket share. `buffers` lends receive memory, so an idle connection uses no buffer. `api_versions` answers
  ApiVersions (KIP-35, KIP-511, KIP-584, KIP-896).
- `channels`: the client side, towards other nodes, and towards this process's own controller. A combined node sends
  itself the requests that separate nodes would use (KIP-500/590).
- `quorum`: the driver of the Raft core, with its storage, peers, commits and snapshots.
- `monitoring`: counters under the names in which Kafka's metrics are usually scraped, and the server of `/metrics`,
  probes and status.
- `tls`, `sasl`, `secure`: TLS and SASL on connections, and their configuration.
- `storage`: the directories of the node together. `node_settings`: the configuration as settings of the parts.
- `controller_registration`: a controller reports itself to the active controller. `migration`: connects the migration
  from ZooKeeper. `faults`: which failures end the node.
- `node`: the composition root; `shutdown`: its stop. No other module knows all parts of the node.

This package must not make decisions about topics, replicas or the quorum.

Limits (each constant has its reason): request size (`socket.request.max.bytes`), connections in total and per address,
unanswered requests and unsent bytes of a connection. Also receive memory of incomplete requests, and idle time.
"""
