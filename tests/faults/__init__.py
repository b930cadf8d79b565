"""A cluster of real processes under real faults: `python -m tests.faults --minutes N`, and two short rounds every day.

- `proxy`: every connection between two members, or a client and a member, passes through it; it knows who called.
- `members`: the processes, their directories and settings.
- `nemesis`: the faults, alone and in pairs, each with its undoing.
- `workload`: producers, consumers and administrators that write down what they were told.
- `rounds`: one round = start, faults under load, healing, judgement by `kraft_node.testing.histories`.
"""
