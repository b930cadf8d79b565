"""The Kubernetes objects of a cluster as plain dictionaries, and the planner's input. Pure functions.

Callers: `apply`, which compares the objects with the existing objects and writes the differences; the plugin's dry run;
the tests. The package does no I/O, and does not decide when to change something: the planner does.

- `cluster`     a resource with its names: the input of all other modules
- `properties`  a node's `server.properties`, and which changes need a restart
- `wanted_of`   specification and annotations -> `plan.model.wanted.Wanted`
- `remembered`  status -> `plan.model.record.Record` and back
- `pods`        a node's hardened pod;  `storage`: its volume claims and format job
- `network`     services, disruption budgets
- `template`    a pool's pod template as parts of a pod
- `windows`     whether a maintenance window is open
- `config_check` errors in Kafka's configuration, by the keys of `kraft_protocol.configs`

Pods are created one by one and belong to the resource itself. A StatefulSet could not keep ids that are never reused,
roll by the state of a quorum, or replace the disk of a single node. The resource owns every object, so that its
deletion works without the operator. Volumes have no owner, so they stay.
"""
