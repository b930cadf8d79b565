"""The scenarios of the comparison, a file a family. Each file lists its own in `SCENARIOS`; nothing else is needed.

A scenario starts its own server through its step, takes all sizes from `Step.size`, and returns `Measured`. It raises
AssertionError, OSError or ToolError if the server fails.
"""
