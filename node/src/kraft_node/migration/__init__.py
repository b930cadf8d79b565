"""From ZooKeeper to KRaft (KIP-866): the driver that copies a ZooKeeper cluster's metadata and writes both for a while.

Release 0.1 has none of it; the records and requests that it needs are known to `wire`, and `metadata` replays the
migration state that a migrated cluster's log holds.
"""
