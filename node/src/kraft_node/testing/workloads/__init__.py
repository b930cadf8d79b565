"""Clients under simulation, written from the protocol alone, and stricter than real ones: each says what it must get.

A workload is one coroutine on a host of its own. It sends requests, goes on after whatever may rightly go wrong (a
connection that breaks, an answer that says "try again"), and tells the `checker` what it sent, was told and read. It
never looks into a node. What breaks a law is the checker's to say; what a node answers that no law of the
protocol allows fails the run at once (`Surprise`).

- `session`   connections, metadata, the coordinator: what every client needs
- `producer`  plain (acks 0, 1, all; sends once) and idempotent (retries in order, several batches under way)
- `consumer`  a member of a classic group: joins, fetches (with and without fetch session), commits
- `admin`     creates, deletes, looks up; writes to what it created
- `operator`  moves replicas and leaders
- `voters`    changes who votes
- `features`  changes metadata.version and eligible leader replicas
- `auditor`   reads everything in the end
"""
