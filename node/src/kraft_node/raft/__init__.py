"""The Raft core of the metadata quorum: elections, commits, and the order of disk writes and messages.

Kafka's Raft (KIP-595) is pull-based: followers and observers fetch, the leader never pushes records. This package
makes decisions. It does no I/O, reads no clock and draws random numbers only from the `Rng` it is given.
`RaftNode.step(event, now_ms)` takes one event (`events`) and returns one `Ready`, which lists all work of that step.
`ready.carry_out` does this work on a host in the safe order. Hosts are `server.quorum.host` on the real or the
simulated `Env`, the Raft simulator, the exhaustive search and tests. Messages are `messages` values; `wire_form`
converts them from and to the protocol's requests.

| file | question it answers |
|-|-|
| `roles` | what each role remembers and does on timers; which role may follow which (`states`) |
| `roles.transitions` | how a replica changes its role, vote and epoch |
| `election` | when to grant a vote, and how to count answers to our vote requests |
| `replication` | answering Fetch, appending fetched records, divergence |
| `snapshots` | which snapshot to offer, answering and sending FetchSnapshot, when to take and delete snapshots |
| `progress` | the fetch offset of each replica; the high watermark |
| `membership` | the voters and their changes (KIP-853), the quorum-state, voters that lost their disk |
| `epochs` | which epochs a replica accepts from others; whether fetched batches continue the log |
| `log_view` | the core's view of the log: start, end, flushed offset, first offset of each epoch |
| `requests` | at most one request in flight to each node, back-off, time-outs |
| `validation` | whether this node can serve a request to the leader of an epoch |
| `accumulator` | appends that wait for the running flush and share the next flush |
| `wire_form`, `describe_quorum` | conversion between core messages and protocol messages; DescribeQuorum |
| `storage` | the interface of the metadata log's files; `log.metadata_log` implements it |
| `ready` | the work of one step, and the order in which a host does it |
| `replica_state` | the state of a replica, and what roles read from it |
| `dispatch` | the effect of each event, request and answer |
| `node` | `RaftNode`: one event in, one `Ready` out |
| `config` | the settings, with Kafka's names |

Duties of the driver (KIP-595, KIP-853, KIP-996; checked by assertions in the core and in `server.quorum.host`):

1. **The whole step.** Carry out the whole `Ready` with `carry_out` before the next step.
2. **Vote and epoch before messages.** Until `Ready.state` is durable, no message leaves: the core puts messages into
   `after_state`, and the host holds them until a step `releases` them. The driver reports `QuorumStateWritten` only
   after it has fsynced the file and the directory.
3. **Own vote.** A candidate counts its own vote only once it is on disk.
4. **Leader's own log.** The leader counts itself up to the last `Flushed` offset, not up to its last write.
5. **Follower's log.** A voter fetches from offset X only when everything below X is flushed: the fetch acknowledges
   those records.
6. **LeaderChange first.** The first record of an epoch is its leader's LeaderChange control record; the leader does not
   expose the high watermark until this record is committed. Otherwise it would commit records of older epochs by
   counting replicas.
7. **High watermark.** It never decreases and never exceeds the offset that a majority has flushed. Nothing below it is
   truncated.
8. **Truncation** happens before any later fetch. The new end is flushed before it is acknowledged.
9. **Snapshots** count once they are renamed into place and their directory is fsynced. Only then may the log before
   them be deleted, and only then may the replica fetch from their end. Snapshots that end before the log starts never
   count (`log_view`); the driver deletes the snapshots in `Ready.stale`.
10. **A failed write or fsync ends the voter.** Its state is then unknown, so the driver stops stepping the node.

Only the core owns the voters and the ids of nodes that may know the leader. The driver reports its findings: voters in
the log and in snapshots at start, `FetchedBatch.voters` in fetched batches, `SnapshotStored.voters`, `Learned`.

The core must not read records (beyond the counts and epochs that the driver gives it), depend on the controller, or
answer clients.
"""
