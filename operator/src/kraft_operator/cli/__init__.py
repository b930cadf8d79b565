"""The command lines: `kraftcluster` for a cluster of local processes, `kubectl kraft` for one on Kubernetes.

The same commands and tables for both, on two kinds of target. They ask for what shall be (annotations and fields of
the specification, or their local counterparts) and tell what is (the status); what is done about it the planner
decides, in the reconciler or the supervisor.

- `target`    what a target can do; how commands end (exit codes)
- `commands`  the commands that both have
- `kraftcluster`  the program of that name: `up` and `down` too;  `local` its target;  `screen` what `up` shows
- `kubectl`   the program `kubectl-kraft`, whose target goes through kubectl itself

Exit codes: 0 done, or ready; 1 not ready, or not done in time; 2 wrong arguments or a wrong file; 3 refused, with the
reason; 4 nothing runs there, or somebody else drives it.
"""
