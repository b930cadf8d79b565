"""The status of a cluster, and tables of it for a terminal.

The reconciler on Kubernetes and the local supervisor write the status. `kubectl kraft` and `kraftcluster` print tables
of a resource with its status. The package does no I/O and decides nothing.

- `status`  record, situation and plan -> `KRaftClusterStatus`
- `tables`  resource with status -> tables for a terminal; imports rich, which only command lines need
"""
