"""The Raft simulator: quorums of the real core on machines that fail. Every law is checked after every event.

`python -m kraft_node.testing.raft --seeds 1000 --events 2000` runs seeds. A failure prints the command that replays it
and the end of its story. One seed decides the quorum (1 to 7 voters, up to 5 observers), the network, the disks, the
clocks and the faults; the same seed gives the same trace hash.

| file | content |
|-|-|
| `simulation` | the seed's decisions, chaos and then calm |
| `quorum` | the machines, time, the event queue |
| `replica` `replica_snapshots` `appends` | one process: a host for a core, as the driver's contract requires |
| `driven` `driven_storage` `driven_voters` | one process with the real driver, on the same disk model |
| `judge` | the checks of each process, after each step and at each message |
| `storage` | the disk of one machine: log, quorum-state, snapshots; what survives |
| `network` | lost, late and duplicate messages, cut links; connections that close |
| `garbling` | responses with absurd epochs |
| `faults` `scenes` | the faults, and how many are permitted at a time |
| `roll` | an operator who changes static voters, one restart after another |
| `laws` | what must hold; each violation names its law |
| `sweep` `__main__` | many seeds, progress, figures |
| `exhaustive` `small_world` | every order of events of a small quorum, within bounds |

Most seeds run a lean harness around `RaftNode`, which fulfils the ten points of `raft/__init__.py` and asserts them.
About one seed in seven runs `server.quorum.driver` instead, with the protocol's bytes, metadata records and the image,
under the same faults and laws, with static or dynamic voters. `kraft_node.testing.sim` runs the driver's files.

The promise to a client is checked for the bare core (`Proposed`) and the driver (`prepare`): if the high watermark has
passed the proposed offsets and leadership was not lost, those offsets hold the proposer's records.

Fault model. *Network*: each message may be lost, duplicated, late or out of order; links are cut in one or both
directions; a process that dies closes its connections, or falls silent. Some requests and responses name the last
epochs that the protocol can express. *Disk*: after a power loss, a prefix of the writes since the last fsync survives;
the next write may be torn (the log's open truncates it). A quorum-state or a snapshot not yet reported as written
exists or not. Fsyncs may take long or fail, as may writes on a full disk; after a failure the process ends. Rot below
the fsynced end is found when the log is opened: the machine is lost. *Clocks* drift by up to 20 % and jump forward by
an hour (monotonic) or either way (wall; it only ages snapshots). *Processes* are killed, paused, restarted. After a
pause, descriptors come before timers, after them, or both in time order; requests that arrive meanwhile wait. A crash
may fall between the naming of a snapshot and the reset of the log. Deleted snapshots may return after a power loss;
bootstrap snapshots stay. *Machines* lose power, or their disk, and return with the same id: of `n` voters with a
majority of `m`, at most `n - m` have lost their disk at one time, since more is not survivable.
"""
