"""The other world: a cluster of processes on one machine, kept by the same planner as on Kubernetes.

Who calls it: the command line `kraftcluster`. It runs the node's programs as processes and imports nothing of them; it
must not decide what is safe: that is the planner's.

- `resource`   the file: checked by the schema and every rule that the API server enforces;  `cel` those rules' language
- `folder`     `.kraft/NAME` and what is written there;  `ports` who listens where, given once
- `processes`  started, seen and signalled by number and start;  `launch` what they begin as
- `files`      `server.properties` and commands of a node;  `probe` whether it is ready
- `world`      processes and folders as the planner's pods, volumes and jobs
- `supervisor` looks, plans, does, tells

Laws, beside the planner's own:

1. One supervisor a cluster: it holds a lock. One process a node: it holds a lock too, for life, whoever started it.
2. What is relied on is on disk first: ids, voters and ports before a process knows them.
3. Killed at any point and started again, a supervisor goes on; nodes run meanwhile.
4. A process is signalled only as the one that was started: number and start must match.
"""
