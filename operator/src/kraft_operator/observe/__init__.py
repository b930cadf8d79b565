"""Observation of Kubernetes objects, the quorum and the cluster's metadata, each view with its age.

The reconciler and the local supervisor call it once per pass. It changes nothing and decides nothing. An unknown value
is None; the planner decides which steps that permits.

- `kafka` queries controllers and brokers in Kafka's protocol; also for local clusters
- `pages` gets a page of a process over HTTP
- `status` reads `/status` of nodes
- `addresses`  addresses for clients outside Kubernetes, a pure function
- `objects`  converts Kubernetes objects to the planner's model, a pure function
- `cluster`  all views of one cluster on Kubernetes
- `source`   the brokers that topics and users are read from, and whether an answer is complete
- `visible`  whether an event of a watch changes anything that a pass could act on
"""
