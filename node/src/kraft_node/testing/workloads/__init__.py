"""Clients under simulation, written from the protocol alone and stricter than real clients.

A workload is one coroutine on its own host. It sends requests, and continues after permitted failures (a connection
that breaks, a retriable error). It reports to the `checker` the records that it sent and read, and its answers. It
never looks into a node. The checker decides whether a law is broken; a response that the protocol does not allow fails
the run at once (`Surprise`).

- `session`   connections, metadata, the coordinator: what every client needs
- `producer`  plain (acks 0, 1, all; sends once) and idempotent (retries in order, several batches under way)
- `consumer`  a member of a classic group: joins, fetches (with and without fetch session), commits
- `fetching`  positions, fetch sessions, and the checks of every response
- `admin`     creates, deletes and looks up topics; writes to the topics that it created
- `reassignments`  moves replicas and leaders
- `voters`    changes the voters of the quorum
- `features`  changes metadata.version and eligible leader replicas
- `auditor`   reads everything in the end
- `keyed`, `sleeper`  clients of a compacted topic
- `rereader`, `bulk`, `flooder`, `spender`  old data, many partitions and segments, a full memory, a full disk
- `acks_law`  the law `visible`
"""
