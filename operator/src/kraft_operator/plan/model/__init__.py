"""The values that the planner reads and returns: observations, record, specification, steps."""
