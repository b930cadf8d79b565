"""The scenarios of the comparison, one file per family. Each file lists its scenarios in `SCENARIOS`.

A scenario starts its own server through its step, takes all sizes from `Step.size`, and returns `Measured`. It raises
AssertionError, OSError or ToolError if the server fails.
"""
