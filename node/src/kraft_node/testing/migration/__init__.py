"""Migrations from ZooKeeper in simulated time: real drivers over models of the quorum and of ZooKeeper.

`python -m kraft_node.testing.migration --seed-from 1 --seeds 100` runs seeds and prints those that break a law.
"""
