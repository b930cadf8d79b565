"""The custom resources `KRaftCluster`, `KRaftTopic` and `KRaftUser`, group `kraftcluster.io`, version `v1alpha1`.

Pydantic models are the only source. The reconciler reads and writes resources through them. `crd` turns them into the
definitions of `deploy/crds` (`python -m kraft_operator.api.generate`; a test compares the files with the models).
Callers: `specs`, which makes the planner's input, the reconciler, the `kubectl-kraft` plugin.

- `base`     the model that all share, and the marks that Kubernetes' schemas know beyond JSON Schema's
- `pools`    node pools: roles, replicas, volumes, pods
- `template` a pool's pod template;  `windows` maintenance windows
- `cluster`  `KRaftClusterSpec` and the rules over all of it
- `listeners`, `security`, `migration`  sections of the cluster's specification
- `status`   `KRaftClusterStatus`: the report of the operator, and the facts that it must remember
- `topic`    `KRaftTopic`;  `user` `KRaftUser`
- `pipelines` `KafkaTable` and the other pipelines;  `pipeline_driver` their pod;  `pipeline_status` their statuses
- `schema`   JSON Schema -> structural schema
- `crd`      the CustomResourceDefinitions
- `versions` v1alpha1 and v1beta1;  `problems` errors of a specification, for its author;  `generate` the written files

The API server itself refuses changes of fields that must never change, through CEL rules over the old and the new
object. No webhook is needed, so an administrator can change the resource when the operator is gone. Every rule's
message names the alternative. Defaults are in the schema, so `kubectl get -o yaml` shows the values in force.

It must not do I/O, and must not make decisions: the planner makes them.
"""
