"""Local clusters: processes on one machine, controlled by the same planner as on Kubernetes.

The command line `kraftcluster` calls it. It runs the node's programs as processes and does not import them. The
planner decides which steps are safe.

- `resource_file`  the file, checked by the schema and all rules of the API server;  `cel` the language of the rules
- `folder`     `.kraft/NAME` and its files;  `ports` ports of listeners, assigned once
- `processes`  starts, observes and signals processes by id and start time;  `launch` the program that starts a node
- `files`      `server.properties` and commands of a node;  `probe` whether a node is ready
- `world`      processes and folders as the planner's pods, volumes and jobs
- `topics`     KRaftTopics of the file;  `protocols` what tests implement
- `users`      KRaftUsers of the file;  `objects` both, after each pass
- `security`   certificates in folders;  `mode` whether the cluster has TLS
- `supervisor` the loop: observe, plan, act, report

Laws, in addition to the planner's own:

1. A cluster has at most one supervisor, which holds a lock. A node has at most one process, which holds a lock for its
   whole life. It does not matter which program started it.
2. State is on disk before anything relies on it: ids, voters and ports before a process gets them.
3. A supervisor that is killed at any point continues after a restart. Nodes run meanwhile.
4. A process is signalled only if its id and start time match the started process.
"""
