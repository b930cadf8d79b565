"""The parts of the simulated disk (`testing.disk`): open files, contents, kernel memory, and faults by a script."""
