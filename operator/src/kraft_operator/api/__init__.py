"""The custom resources `KRaftCluster` and `KRaftTopic`, group `kraftcluster.io`, version `v1alpha1`.

Pydantic models are the one source: the reconciler reads and writes resources through them, and `crd` turns them into
the definitions of `deploy/crds` (`python -m kraft_operator.api.generate`; a test holds the files to the models). Who
calls it: the planner's `desired`, the reconciler, the `kubectl-kraft` plugin.

- `base`     the model that all share, and the marks that Kubernetes' schemas know beyond JSON Schema's
- `pools`    node pools: roles, replicas, volumes, pods
- `template` a pool's pod template;  `windows` maintenance windows
- `cluster`  `KRaftClusterSpec` and the rules over all of it
- `status`   `KRaftClusterStatus`: what the operator reports, and what it must remember
- `topic`    `KRaftTopic`
- `schema`   JSON Schema -> structural schema
- `crd`      the CustomResourceDefinitions

What may never change is refused by the API server itself, through CEL rules over the old and the new object; no webhook
is needed, so that nothing stands between an administrator and the resource when the operator is gone. Every rule's
message says what to do instead. Defaults are in the schema: what `kubectl get -o yaml` shows is what is in force.

It must not do I/O, and must not decide anything: that is the planner's.
"""
