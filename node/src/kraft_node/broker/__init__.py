"""A broker: the APIs for clients, its replicas, and its life cycle with the controller.

| file | question it answers |
|-|-|
| `broker` | the broker: handler table, committed metadata, start and stop |
| `handlers/` | one file per API; its header lists versions and differences |
| `authorization/` | the permissions that each API requires: guards in front of the handlers (see `security`) |
| `fetch/` | sessions, reading, waiting |
| `producing/` | preparing batches, opening logs, waiting for replicas |
| `pieces` | large requests, split or refused |
| `client_quotas` | quotas of clients: bytes, requests |
| `lifecycle` | registration, heartbeats, unfencing, controlled shutdown (KIP-631) |
| `forward`, `controller_link` | forwarding to the controller, and the link to it (KIP-590) |
| `self_fencing` | refusing clients without contact to a controller (KIP-343) |
| `replication/` | following other leaders, leading with followers |
| `directories`, `log_dir_moves` | which directory has which replica; moves between directories (KIP-858, KIP-113) |
| `transactions/` | the side of the partitions: verification, markers, offsets in transactions |
| `metadata_cache`, `leader_hints` | data about brokers and leaders for clients (KIP-951) |
| `auto_topics`, `producer_ids` | topics and ids that the broker requests from the controller for clients (KIP-730) |
| `telemetry` | client metrics subscriptions (KIP-714) |
| `coordinators/` | groups and transactions: state in internal topics |

`server.node` creates the broker, gives its `handlers` to the listeners, and calls `apply` after each run of committed
records. The metadata image is shared and only read here. Logs are accessed through `partition.ReplicaManager`.

The broker must not do I/O beyond its logs, know sockets, or let requests wait without a limit. Waiting fetches,
produces and forwarded requests each have a limit, and its constant states the reason.

ApiVersions is derived from `Broker.handlers`: an API without a handler is not advertised, so clients do not try group
protocols that are not served here. Telemetry (KIP-714) is served but not advertised, as in Kafka without a receiver.
Clients do not push, and a client that sends a request anyway gets an answer.
"""
