"""The planner: computes the next steps from the record, the specification and the observations.

`planner.plan` is a pure function. It does no I/O, reads no clock, draws no random number and imports nothing of
Kubernetes. The reconciler on Kubernetes, the local supervisor and the simulator call it.

- `model.record`    the only state that is kept between passes
- `model.wanted`    the wanted state by the specification; `specs.planner_input` builds it from the API's models
- `model.observed`  the observed pods, volumes, quorum and partitions, each with its age
- `model.situation` the three together and facts that follow: live voters, outdated parts of a pod
- `model.steps`     the possible steps, and which of them disrupt
- `gates`      whether a node may go down now, by the quorum and by the partitions; `evictions` whether a pod may
- `nodes`      the life of nodes: ids, volumes, formats, pods, voters, restarts, replacement, removal, metadata.version
- `replicas`   moves of replicas: off brokers that leave, towards new brokers, by load, to another number of replicas
- `topics`     KRaftTopics, planned separately, a batch at a time
- `users`      KRaftUsers, likewise;  `migration` the phases of a migration from ZooKeeper
- `planner`    the order of all that;  `conditions` the conditions of the resource

tests/property/operator asserts these laws against slow twins and a world that crashes the operator anywhere.
tests/sim/operator asserts them over real Raft cores:

1. A plan has at most one disruptive step.
2. A view that is unknown, or older than the operator's last action, permits no disruption. The plan names the view.
3. A voter is taken down only if a live majority remains without it. This must hold in every voter set that a
   controller still runs with, and in the set being put into force. A quorum of one or two voters cannot satisfy
   this: there, all other voters must be live.
4. Voter sets change by one voter, and only once every controller runs with the present set. Majorities of any two
   sets in force then share a voter, so two leaders of one epoch are impossible (Raft's dissertation, 4.1). The
   exception is a host that is replaced by another id while it is down. The old host must be stopped for good first;
   the majorities without it then share a voter again.
   Voters in the log change only if the last change is committed and the log has the address of every voter that stays.
   While a change may not be committed, no live controller goes down, and no removed voter is stopped for good.
5. A broker is taken down only if every partition keeps min.insync.replicas without it. `unavailableTopics` are exempt.
6. An id is assigned once. A disk is formatted once. A lost disk is made again only if a replacement requests it, and
   then under a new name. So nothing is ever erased.
7. A pod is made without a volume only once its broker reports that the volume is empty and takes no new replicas.
8. A decision is recorded before it is carried out. Every step can be repeated.
"""
