"""A cluster under the load that users have, for an hour: producers, groups, transactions, compaction, retention, rolls.

`python -m tests.soak --minutes 60`, or `make soak MINUTES=60`. Every record must be read once and in order. Memory,
descriptors, disk and latencies are drawn over time; they have to stay flat.
"""
