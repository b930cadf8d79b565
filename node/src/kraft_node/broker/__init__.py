"""A broker: what clients ask of it, what it holds, and its life in the eyes of the controller.

| file | question it answers |
|-|-|
| `broker` | the whole: handler table, committed metadata, start and stop |
| `handlers/` | one file an API; its header lists versions and deviations |
| `authorization/` | what each API asks of the client: guards in front of the handlers (see `security`) |
| `fetch/` | sessions, reading, waiting |
| `lifecycle` | registration, heartbeats, unfencing, controlled shutdown (KIP-631) |
| `forward`, `controller_link` | what the controller decides, and the way to it (KIP-590) |
| `self_fencing` | whether clients are refused, for want of a controller (KIP-343) |
| `replication/` | following other leaders, leading with followers |
| `metadata_cache`, `leader_hints` | what clients are told of brokers and leaders (KIP-951) |
| `auto_topics`, `producer_ids` | topics and ids had from the controller on behalf of clients (KIP-730) |
| `telemetry` | which client metrics are asked of whom (KIP-714) |
| `coordinators/` | groups, later transactions: state kept in internal topics |

Who calls it: `server.node` builds one, hands its `handlers` to the listeners and calls `apply` after each run of
committed records. The metadata image is shared and only read here. Logs come through `partition.ReplicaManager`.

It must not do I/O beyond its logs, know sockets, or keep a request waiting without a bound: waiting fetches, produces
and forwarded requests each have one, with the constant that says why.

ApiVersions is derived from `Broker.handlers`: an API that is not in the table is not advertised, so clients do not try
group protocols that are not served here. Telemetry (KIP-714) is served without being advertised: as in Kafka without a
receiver, clients do not push, and whoever asks all the same is answered.
"""
