"""Migrations from ZooKeeper on real processes under faults: `python -m tests.faults.migration --runs N --seed S`."""
