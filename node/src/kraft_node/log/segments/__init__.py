"""The files of one log: segments with their indexes, in order, and the limited number of open files."""
