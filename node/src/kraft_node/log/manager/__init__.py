"""All logs of a node: their directories, the periodic work, moves between directories, start and stop."""
