"""The Raft simulator: quorums of the real core on machines that fail, every law checked after every event.

`python -m kraft_node.testing.raft --seeds 1000 --events 2000` runs seeds; a failure prints the one command that replays
it and the end of its story. One seed decides the quorum (1 to 7 voters, up to 5 observers), the network, the disks,
the clocks and the faults; the same seed gives the same hash of the trace.

| file | what it is |
|-|-|
| `simulation` | the queue of events, what the seed decides, chaos and then calm |
| `replica` `replica_snapshots` | one process: the host of a core, as the driver's contract says |
| `driven` `driven_storage` `driven_voters` | one process that is the real driver, on the same model of a disk |
| `judge` | what each process is judged by, after each step and at each message |
| `storage` | the disk of one machine: log, quorum-state, snapshots; what survives |
| `network` | messages lost, late, doubled, cut off; connections that close |
| `faults` `scenes` | what goes wrong, and how much may at one time |
| `roll` | whoever changes static voters, one restart after the other |
| `laws` | what must hold; each violation names its law |
| `sweep` `__main__` | many seeds, progress, figures |
| `exhaustive` `small_world` | every order of events of a small quorum, up to bounds |

Most seeds run a lean harness around `RaftNode`: it keeps the ten points of `raft/__init__.py` and asserts them. About
one seed in seven runs `server.raft_driver` instead, with the protocol's bytes, metadata records and the image, under
the same faults and laws, with static voters or with voters in the log. The files of the driver run in
`kraft_node.testing.sim`.

What a client is promised is checked, of the bare core (`Proposed`) and of the driver (`prepare`): those offsets hold
the proposer's records once the high watermark has passed them and leadership was not lost.

Fault model. *Network*: each message may be lost, doubled, late or out of order; links are cut in one or both
directions; a process that dies closes its connections, or falls silent. Some requests and answers name the last epochs
that the protocol knows. *Disk*: without power, of the writes since
the last fsync any number from the front survives, the next one may be torn (then it is cut off when the log is
opened); a quorum-state or a snapshot not yet reported as written is there or not. Fsyncs take long, or fail, and so
do writes on a full disk: then the process ends. Rot below what was fsynced is found when the log is opened: the
machine is lost. *Clocks* drift by up to 20 % and jump forward by an hour (monotonic) or either way (wall, which only
ages snapshots). *Processes* are killed, paused, restarted; after a pause descriptors come before timers, after them,
or both in the order of time. Requests that arrive meanwhile wait. A crash falls also between the name of a snapshot
and the reset of the log; deleted snapshots may come back with a loss of power; bootstrap snapshots stay. *Machines*
lose power, or their disk, and come back with the same id: of `n` voters with a majority of `m`, at most `n - m` have
lost their disk at one time; more is not survivable.
"""
