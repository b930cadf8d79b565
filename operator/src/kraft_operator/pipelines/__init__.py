"""`KafkaTable`, `KafkaMetadataArchive` and `KafkaScrub` on Kubernetes: `kraft-pipeline` as Deployments, Jobs, CronJobs.

The operator's second queue calls it, one pass per resource at a time. A pass reads the resource, builds the wanted
objects (`manifests`, pure), and writes the objects that differ. It reads the pods, requests the state of a table from
its driver, and writes the status (`status`, pure). No state is recorded between passes: the progress of a table is in
the table itself.

- `kinds`      how the resources differ
- `manifests`  configuration, claims, workload and network policy of a resource
- `executors`  Spark's executors as pods
- `grants`     checks of the Secrets and claims that pipelines may use
- `clusters`   what `clusterRef` leads to: the address of a listener
- `status`     the status with its conditions
- `reconcile`  the pass; it and `grants` do all the I/O

The resource owns all objects except claims. So Kubernetes deletes them with the resource, even without the operator,
and tables stay. This package never changes a cluster and never reads a table; the driver does.
"""
