"""The Kubernetes objects of a cluster as plain dictionaries, and the planner's input. Pure functions.

Callers: `apply`, which compares the objects with the existing objects and writes the differences; the plugin's dry run;
the tests. The package does no I/O, and does not decide when to change something: the planner does.

- `cluster`     a resource with its names: the input of all other modules
- `properties`  a node's `server.properties`, and which changes need a restart
- `planner_input` specification and annotations -> `plan.model.wanted.Wanted`
- `remembered`  status -> `plan.model.record.Record` and back
- `pods`        a node's hardened pod;  `storage`: its volume claims and format job
- `network`     services, disruption budgets
- `fronts`      Ingresses, Routes and the names outside;  `issuers` requests to cert-manager
- `security`    TLS, authentication and permissions of a node;  `mode` whether the cluster has TLS
- `migration`   a controller that migrates from ZooKeeper
- `issued`      credentials of users;  `client_config` files for clients;  `user_access` the listener of a user
- `template`    a pool's pod template as parts of a pod
- `windows`     whether a maintenance window is open
- `quantities`  Kubernetes' quantities as bytes
- `config_check` errors in Kafka's configuration, by the keys of `kraft_protocol.configs`

Pods are created one by one and belong to the resource itself. A StatefulSet could not keep ids that are never reused,
roll by the state of a quorum, or replace the disk of a single node. The resource owns every object, so that its
deletion works without the operator. Volumes have no owner, so they stay.
"""
