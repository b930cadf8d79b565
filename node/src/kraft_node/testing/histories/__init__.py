"""Judges of client observations: they take histories and return broken promises.

- `logs`: producers and consumers of partitions. Lost, phantom, duplicate, reordered, unstable, skipped.
- `linearizability`: operations on named things (topics, configs) against a sequential model, after Wing & Gong (1993)
  and Lowe (2017). Each name is judged separately, because linearizability is local (Herlihy & Wing 1990).

They do not know how the history was made: the simulator and runs over real processes both use them. Their own tests
plant each kind of violation and require that it is found.
"""
