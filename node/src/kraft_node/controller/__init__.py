"""The quorum controller: turns requests into records of the metadata log (KIP-631, KIP-500).

The **active** controller is the one whose node leads the metadata quorum. It plans against the metadata as it will be
once everything appended is committed (`metadata.overlay`, design decision 2), appends records, applies them to the
overlay, and answers when they are committed. A **standby** only follows the committed image. When leadership is lost
the overlay is dropped and everyone who waits is told NOT_CONTROLLER: whether the records will be committed, nobody
knows.

| file | question it answers |
|-|-|
| `controller` | `Controller`: which handler a request has, in what order things happen to it, periodic work |
| `cluster` | what managers plan against: overlay, index, sessions, configuration in force |
| `plan`, `deferred`, `periodic` | records plus answer; answers waiting for commit; timers |
| `activation` | what is written first: bootstrap records (KIP-868), the end of an abandoned transaction |
| `features` | UpdateFeatures (KIP-584, KIP-778) |
| `brokers`, `sessions` | registration, leases, fencing, controlled shutdown, directories (KIP-631, KIP-841, KIP-858) |
| `topics`, `names`, `placement` | topics and partitions come and go; allowed names; where replicas are put |
| `leaders`, `change` | elections, and the one function by which partitions change (KIP-704, KIP-966) |
| `isr` | AlterPartition, AssignReplicasToDirs (KIP-497, KIP-858, KIP-903) |
| `reassignments` | replicas move (KIP-455, KIP-860) |
| `index`, `blocks`, `derived` | which partitions concern a broker: fencing costs its own only; ready on standbys |
| `configs`, `quotas`, `scram`, `acls`, `producer_ids` | one kind of record each |
| `mutation_quota` | how many partitions a client may create and delete in a second (KIP-599) |
| `envelope` | requests that brokers forward for their clients (KIP-590) |
| `authorization` | what each API asks of who calls it: guards in front of the handlers (see `security`) |
| `describe` | what a controller says of itself and its quorum (KIP-919) |

Who calls it: `server` gives `Controller.handlers` to the controller listener and to the broker of a combined node, and
connects it with the raft driver, which has hooks of the same names: `on_commit(offset)` after committed records have
been replayed into the image, `on_leader(epoch)` once everything committed before the epoch is in the image,
`on_lost_leadership(epoch)`, `on_leader_changed(leader_id, epoch)`. `MetadataLog` is what the controller needs from the
driver; the driver's `metadata_level` is to be `Controller.metadata_level`, `Controller.in_transaction` the loader's.

What it must not do: touch disk or network, read a clock other than through `Env`, change the image, or answer before
commit. Managers return plans and change nothing. Cost is O(what changes).

Not here: ApiVersions, DescribeQuorum and the voters' requests (raft's own, answered by `server`), create-topic and
alter-config policies (Java plug-ins), delegation tokens (refused as disabled).
"""

from __future__ import annotations

from kraft_node.controller.controller import Controller, MetadataLog
from kraft_node.controller.plan import Plan

__all__ = ["Controller", "MetadataLog", "Plan"]
