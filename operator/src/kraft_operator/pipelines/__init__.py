"""`KafkaTable`, `KafkaMetadataArchive` and `KafkaScrub` on Kubernetes: `kraft-pipeline` as Deployments, Jobs, CronJobs.

Who calls it: the operator's second queue, one pass a resource at a time. A pass reads the resource, makes the objects
that it asks for (`manifests`, pure), writes those that differ, looks at its pods, asks a table's driver how it is, and
writes the status (`told`, pure). Nothing is remembered between passes: where a table stands is in the table itself.

- `kinds`      what the resources differ in
- `manifests`  resource -> configuration, claims, workload, network policy
- `told`       what was seen -> the status with its conditions
- `reconcile`  the pass; the only file with I/O

Everything has the resource as its owner and goes with it, whether the operator is there or not; claims have no owner:
tables stay. It must not do anything to a cluster, and must not read a table: that is the driver's.
"""
