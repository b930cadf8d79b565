"""What people see of a cluster: its status, and the tables made of it.

Who calls it: the reconciler on Kubernetes and the local supervisor write `status`; `kubectl kraft` and `kraftcluster`
print `tables` of a resource with its status, wherever it came from. It must not do I/O, and it decides nothing.

- `status`  record, situation and plan -> `KRaftClusterStatus`
- `tables`  a resource with its status -> tables for a terminal; imports rich, which only command lines need
"""
