"""The planner: what is remembered, wanted and observed -> the next steps. A pure function, `planner.plan`.

Who calls it: the reconciler on Kubernetes, the local supervisor, the simulator. It must not do I/O, read a clock,
or draw a random number; it imports nothing of Kubernetes.

- `record`    what is remembered between passes (the status of the resource), and nothing else is
- `wanted`    what the specification asks for; `specs.wishes` makes it of the API's models
- `observed`  what is seen of pods, volumes, the quorum and the partitions, each with its age
- `steps`     what can be done; which of it disrupts
- `situation` the three together, and what follows from them: who is live, what a pod lacks
- `gates`     may this node go down now? the quorum's answer, the partitions' answer
- `assign`    ids, voters, who leaves;  `provision` volumes, formats, pods
- `replace`   a node's disk or machine;  `voters` the static and the dynamic voters, one at a time
- `roll`      restarts;  `leave` the end of a node;  `finalize` metadata.version
- `moves`     replicas move: `drain` off brokers that leave, `balance` towards new ones or on request
- `volumes`   a pool has a volume less: emptied, proven to be empty, left out, kept or deleted
- `topics`    KRaftTopics, apart from all that: a batch at a time
- `levels`    names of metadata.version;  `values` of configurations, whether two are the same
- `planner`   the order of all that;  `conditions` what people are told

The laws, asserted by tests/property/operator against slow twins and a world that crashes the operator anywhere, and by
tests/sim/operator over real Raft cores:

1. A plan has at most one disruptive step.
2. What is unknown, or older than the last thing done, permits nothing that disrupts; the plan says what is unknown.
3. A voter is taken down only if in every voter set that some controller still runs with, and in the one being put
   into force, a live majority is left without it. In a quorum of one or two, that cannot be: then all others must
   live.
4. Voter sets change by one voter, and only once every controller runs with the present one: majorities of any two
   sets in force share a voter, so two leaders of one epoch are impossible (Raft's dissertation, 4.1). The
   exception, a host replaced by one of another id while it is down, needs the old host stopped for good first: the
   majorities left without it share a voter again.
5. A broker is taken down only if every partition keeps min.insync.replicas without it, named exceptions aside.
6. An id is given once. A disk is formatted once: one that is gone is not made again unless a replacement asks for
   it, and then under a new name, so that nothing is ever erased.
7. A pod is made without a volume only once its broker has said that the volume is empty and takes nothing new.
8. Whatever is decided is remembered before it is done; whatever is done can be done again.
"""
