"""The producers of a log: idempotence and open transactions, their snapshots and their replay."""
