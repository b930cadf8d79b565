"""The Raft core of the metadata quorum: who leads, what is committed, what must be on disk before what is said.

Kafka's Raft (KIP-595) is pulled: followers and observers fetch, the leader never sends records. This package decides;
it does no I/O, reads no clock and draws random numbers only from the `Rng` it is given. `RaftNode.step(event, now_ms)`
takes one `events` thing and returns one `Ready`: all that the step wants done. `ready.carry_out` does it on a host, in
the one safe order. Hosts are `server.raft_host` on the real or the simulated `Env`, the Raft simulator, the exhaustive
search and tests. Messages are `messages` values; `wire_form` translates them from and to the protocol's requests.

| file | question it answers |
|-|-|
| `states` | which role may follow which: one table, anything else raises |
| `unattached` `prospective` `candidate` `leader` `follower` `resigned` | what a role remembers and does by itself |
| `election` | whether to grant a vote, and what the answers to ours mean |
| `replication` | answering Fetch, taking in fetched records, divergence |
| `snapshots` | which snapshot to offer, answering and using FetchSnapshot, when to take and drop snapshots |
| `progress` | how far each replica is; the high watermark |
| `quorum` | the voters (directory ids shaped for KIP-853) and the quorum-state |
| `epochs` | which epochs a replica takes from others; whether fetched batches follow |
| `log_view` | what the core knows of the log: its ends, what is flushed, where each epoch began |
| `requests` | at most one request in flight to each node, back-off, time-outs |
| `accumulator` | appends that wait for the running flush, to share the next one |
| `amnesia` | what a voter with an emptied disk may do, and when it is a voter again |
| `voter_changes` | which voters count, adding, removing and updating them (KIP-853) |
| `voter_history` | kraft.version and the voters that the log itself states (KIP-853) |
| `wire_form` | the core's messages from and to the protocol's; DescribeQuorum |
| `storage` | what the driver needs of the files; `log.metadata_log` provides it |
| `ready` | what a step wants done, as one value, and the order in which a host does it |
| `replica_state` | what a replica knows, and what roles ask of it |
| `transitions` | how a replica takes a role, and what it remembers of its vote and epoch |
| `dispatch` | what each event, request and answer does |
| `node` | `RaftNode`: one event in, one `Ready` out |

What the driver must do (KIP-595, KIP-853, KIP-996; checked by assertions in the core and in `server.raft_host`):

1. **The whole step.** Carry out a `Ready` by `carry_out`, all of it before the next step.
2. **Vote and epoch before words.** While `Ready.state` is unanswered nothing leaves: the core gives messages as
   `after_state`, the host holds them until a step `releases` them. The driver reports `QuorumStateWritten` only after
   fsync of file and directory.
3. **Own vote.** A candidate counts its own vote only once it is on disk.
4. **Leader's own log.** The leader counts itself up to the last `Flushed`, not up to what it has written.
5. **Follower's log.** A voter fetches from offset X only when everything below X is flushed: the fetch is its
   acknowledgement.
6. **LeaderChange first.** The first record of an epoch is its leader's LeaderChange control record; the high watermark
   is not exposed before it is itself committed, so that records of older epochs are never committed by counting.
7. **High watermark.** It never goes back nor passes what a majority has flushed, and nothing below it is truncated.
8. **Truncation** is carried out before any later fetch, and its new end is flushed before it is acknowledged.
9. **Snapshots** count once they are renamed into place and their directory is fsynced; only then may the log before
   them go, and only then is a fetch from their end sent. Snapshots that end before the log starts never count
   (`log_view`); the driver deletes them when `Ready.stale` says so.
10. **A failed write or fsync ends the voter.** Its state is unknown from then on: the driver stops stepping the node.

The core alone owns the voters and the ids that it asks for the leader. The driver tells what it finds: voters in the
log and in snapshots at the start, `Batch.voters` in fetched batches, `SnapshotStored.voters`, `Learned`.

What it must not do: look into records (other than the counts and epochs it is told), know the controller, or answer a
client.
"""
