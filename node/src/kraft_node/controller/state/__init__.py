"""The state that managers plan against, and the indexes that follow from it."""
