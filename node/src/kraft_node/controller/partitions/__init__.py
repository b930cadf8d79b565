"""Topics and partitions: creation, placement, leaders, ISRs, reassignments."""
