"""What the cluster is made of on Kubernetes, as plain objects, and the planner's wishes. Pure functions.

Who calls it: `apply`, which holds the objects against what is there and writes the differences; the plugin's dry run;
the tests. It must not do I/O, and must not decide when: that is the planner's.

- `cluster`     one resource with its names: what all others take
- `properties`  a node's `server.properties`, and what of it is a reason to restart
- `wishes`      specification and annotations -> `plan.wanted.Wanted`
- `remembered`  status -> `plan.record.Record` and back
- `pods`        a node's pod, hardened;  `storage` its volume claims and format job
- `network`     services, disruption budgets
- `template`    a pool's pod template as pieces of a pod
- `windows`     whether a maintenance window is open
- `config_check` mistakes in Kafka's configuration;  `config_keys` the node's keys
- `dynamic_keys` Kafka's keys that need no restart

Pods are made one by one and belong to the resource itself: no StatefulSet could keep ids that are never used twice,
roll by the state of a quorum, or replace one node's disk. Everything has the resource as its owner, so that deleting it
works with the operator gone; volumes have no owner: they stay.
"""
