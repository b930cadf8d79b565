"""A world in which a single seed decides everything, for running whole nodes and their clients deterministically.

The node under test is the code that `runtime` runs, unchanged: it gets another `Env`. One queue of events holds all
that is to happen on all machines; simulated time jumps from one to the next; whatever could be otherwise (delays,
orders, what a loss of power takes, which fault comes when) is drawn from one generator. The same seed gives the same
trace in every process: a failure that was seen once is seen as often as one likes. Because no time passes, a cluster's
life with its crashes takes a tenth of a second.

- `world`      queue, clock, timers, background lanes; hosts whose processes can die between two events, inside one, or
               stand still
- `disk`, `net`  the fault models, each documented at its top
- `machine`    a machine with a node on it: formatted by the product's own code, started, stopped, killed;
               `SimCluster` makes any number of them, which know one another by name
- `script`     coroutines on simulated time
- `client`, `workloads`  clients written from the protocol alone, stricter than real ones
- `misfortune`  what goes wrong, and when: `faults` for nodes by themselves; `cluster_faults`, `disk_faults`
- `checker`    the laws, by name; `histories` judges what many kinds of runs have recorded
- `scenario`   one seed, from formatted disks to the verdict; `sim` many seeds, and the replay of one
- `raft`       the Raft core by itself, with many voters, under its own and far more faults

How to read a failure: `python -m kraft_node.testing.sim --seed S --story` tells it from the first start on: what every
node logged, what every client noticed, which faults came. The law that broke names the partition and the offsets. A
failure of the node gets a named test at the unit that is wrong first, and its seed stays in `tests/sim/test_node.py`.

Who calls it: tests and `make sim`. Nothing of the product imports this package. It is part of the product all the same:
who changes a core runs it. It must not look into nodes to judge them, but for one thing that no client can know: how
far a log had been fsynced when the power went. It must not read the real clock, disk or network, and it must not
iterate over sets of objects, whose order depends on addresses.
"""
