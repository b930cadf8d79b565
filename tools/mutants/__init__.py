"""Mutants: small wrong changes, drawn at random from the cores, that the simulators must find.

Planted bugs are chosen faults that a simulator must find. Mutants are drawn at random, so they measure how many faults
it finds. Each mutant runs under random seeds until a law is broken or its budget is used up. The unit tests of the core
judge the survivors, and a person reads what these tests do not find.

    python -m tools.mutants run [--core raft ...] [--sample 40] [--seed N] [--jobs 2]
    python -m tools.mutants list CORE                 the names of all mutants
    python -m tools.mutants show NAME                 the change, as a diff
    python -m tools.mutants hunt NAME [--first SEED]  hunt one, to refute or confirm a line of the report
    python -m tools.mutants page [--check]            write docs/detection from the files of runs

The operators are our own, because libraries for mutation (cosmic-ray, mutmut) drive a test suite instead of seeds, and
do not delete statements, which is the mutation that says most about a core with state.
"""
