"""Deterministic simulation of whole nodes and their clients: one seed decides everything.

The node under test is the code that `runtime` runs, unchanged; it gets another `Env`. One queue holds the events of all
machines, and simulated time jumps from one event to the next. One generator draws everything that could vary: delays,
orders, the effects of a power loss, the faults and their times. The same seed gives the same trace in every process, so
every failure can be replayed. No real time passes: a cluster's run with its crashes takes a tenth of a second.

- `world`      queue, clock, timers, background lanes; hosts with processes that can die between two events or inside
  an event, or pause
- `disk`, `net`  the fault models, each documented at its top; `disks` has the parts of a disk
- `machine` a machine with a node on it: formatted by the product's own code, started, stopped, killed. `SimCluster`
  makes any number of machines, which address one another by name
- `script`     coroutines on simulated time
- `client`, `workloads`  clients written from the protocol alone, stricter than real clients
- `fault_injector`  the base of the fault injectors: `faults` for single nodes; `cluster_faults`, `disks.faults`
- `lost_appends`  refused appends of coordinators, as a fault; `rare_paths`  rare paths of the product, often taken
- `slow_plans`  long plans of controllers in slow turns
- `leftovers`  what requests have left in a node
- `checker`    the laws, by name; `histories` judges recorded histories of many kinds of runs
- `replica_laws`, `controller_laws`, `coordinator_laws`  laws inside nodes; `history` judges a run a second time
- `scenario`   one seed, from formatted disks to the verdict; `sim` runs many seeds and replays a single seed
- `cluster_scenario`  one seed of a cluster; `groups`, `transactions`, `secured` are clusters with other clients, and
  `whole` composes all of them in one world
- `migration`, `zookeeper`  migrations from ZooKeeper over models of the quorum and of ZooKeeper
- `raft`       the Raft core alone, with many voters, under its own and far more faults

How to read a failure: `python -m kraft_node.testing.sim --seed S --story` prints the run from the first start: the
nodes' logs, the clients' observations, the faults. The broken law names the partition and the offsets. For a bug of the
node, first write a named test of the unit that is wrong; the seed stays in `tests/sim/test_node.py`.

Tests and `make sim` use this package; the product does not import it. It is shipped with the product, so that authors
of changes to a core can run it. It must judge nodes from outside, with one exception that no client can observe: how
far a log was fsynced when the power failed. It must not read the real clock, disk or network, and must not iterate
over sets of objects, because their order depends on addresses.
"""
