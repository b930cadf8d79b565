"""The quorum controller: converts requests to records of the metadata log (KIP-631, KIP-500).

The **active** controller is on the node that leads the metadata quorum. It plans against the metadata that will be
valid once all appended records are committed (`metadata.overlay`). It appends records, applies them to the overlay,
and answers when they are committed. A **standby** only follows the committed image. If the active controller loses
leadership, it drops the overlay and answers NOT_CONTROLLER to all waiting requests: whether their records will be
committed is unknown.

| file | question it answers |
|-|-|
| `controller` | `Controller`: the handler of each request, the order of its steps, periodic work |
| `state` | the state that managers plan against: overlay, indexes, leases, effective configuration |
| `plan`, `deferred`, `periodic` | records plus answer; answers that wait for commit; timers |
| `long_plans` | plans that take several turns of the loop; brokers that leave their ISRs |
| `activation` | the first records of a new active controller: bootstrap (KIP-868), end of an abandoned transaction |
| `brokers` | registration, fencing, controlled shutdown, directories (KIP-631, KIP-841, KIP-858) |
| `partitions` | topics, placement, elections, ISRs, reassignments (KIP-497, KIP-455, KIP-704, KIP-903, KIP-966) |
| `settings` | configurations, quotas, SCRAM users, access control, features, loggers: one kind of record per file |
| `producer_ids` | blocks of producer ids (KIP-730) |
| `mutation_quota` | how many partitions a client may create and delete per second (KIP-599) |
| `envelope` | requests that brokers forward for their clients (KIP-590) |
| `authorization` | the permissions that each API requires: guards in front of the handlers (see `security`) |
| `describe` | DescribeCluster and DescribeConfigs on a controller (KIP-919) |
| `migration` | what the controller does while its cluster migrates from ZooKeeper (KIP-866) |

Callers: `server` gives `Controller.handlers` to the controller listener and to the broker of a combined node. It also
connects the controller with the raft driver, which has hooks of the same names: `on_commit(offset)` after committed
records have been replayed into the image, `on_leader(epoch)` once everything committed before the epoch is in the
image, `on_lost_leadership(epoch)`, `on_leader_changed(leader_id, epoch)`. `ControllerLog` is the interface that the
controller needs from the driver. The driver's `metadata_level` must be `Controller.metadata_level`;
`Controller.in_transaction` must be the loader's.

The controller must not use disk or network, read a clock other than through `Env`, change the image, or answer before
commit. Managers return plans and change nothing. The cost of a request is proportional to its changes.

Not in this package: ApiVersions, DescribeQuorum and the voters' requests (`server` answers them), create-topic and
alter-config policies (Java plug-ins).
"""

from __future__ import annotations

from kraft_node.controller.controller import Controller, ControllerLog
from kraft_node.controller.plan import Plan

__all__ = ["Controller", "ControllerLog", "Plan"]
