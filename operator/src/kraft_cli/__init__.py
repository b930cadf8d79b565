"""The command lines: `kraftcluster` for a cluster of local processes, `kubectl kraft` for a cluster on Kubernetes.

Both have the same commands and tables, on two kinds of target. Commands write requests (annotations and fields of the
specification, or their local counterparts) and show the status. The planner, in the reconciler or the supervisor,
decides what to do about a request.

- `target`    protocol of a target; exit codes
- `commands`  the commands of both programs
- `kraftcluster`  the program of that name, with `up` and `down`;  `local` its target;  `screen` the output of `up`
- `kubectl` the program `kubectl-kraft`, with a target that runs kubectl
- `users`   commands for users;  `migration` `kraftcluster migrate`;  `versions` `kubectl kraft versions`

Exit codes: 0 done, or ready; 1 not ready, or not done in time; 2 wrong arguments or a wrong file; 3 refused, with the
reason; 4 no cluster runs there, or another supervisor drives it.
"""
