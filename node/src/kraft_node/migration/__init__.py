"""Migration from ZooKeeper (KIP-866). This package is empty: release 0.1 does not implement the migration.

`metadata` replays the migration state in the log of a cluster that was migrated with Apache Kafka.
"""
