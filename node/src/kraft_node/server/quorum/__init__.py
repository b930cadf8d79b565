"""The driver of the Raft core: storage, peers, commits, snapshots."""
