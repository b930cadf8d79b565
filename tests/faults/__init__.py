"""A cluster of real processes under real faults: `python -m tests.faults --minutes N`, and two short rounds every day.

- `proxy`: carries every connection between two members, or from a client to a member, and knows its origin.
- `members`: the processes, their directories and settings.
- `nemesis`: the faults, alone and in pairs; each undoes itself.
- `workload`: producers, consumers and administrators that record every answer.
- `rounds`: one round = start, faults under load, healing, judgement by `kraft_node.testing.histories`.
"""
