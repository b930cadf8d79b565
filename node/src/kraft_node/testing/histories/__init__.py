"""Judges of what clients saw: histories go in, broken promises come out.

- `logs`: producers and consumers of partitions. Lost, phantom, duplicate, reordered, unstable, skipped.
- `linearizability`: operations on named things (topics, configs) against a sequential model, after Wing & Gong (1993)
  and Lowe (2017), one name at a time, which linearizability allows (Herlihy & Wing 1990, locality).

They know nothing of how the history came about: the simulator and the runs over real processes both use them. Their own
tests plant each kind of bad history and want it found, for a judge that never convicts is worth nothing.
"""
