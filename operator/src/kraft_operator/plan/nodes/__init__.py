"""The life of nodes: ids, volumes, voters, restarts, replacement, removal."""
