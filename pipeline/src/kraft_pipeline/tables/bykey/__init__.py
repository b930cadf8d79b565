"""Rows by key: `upserts` gathers the `changes` of a batch by their `ordering`, and `merging` merges them into files.

`tombstones` remembers deleted rows. `generations` counts how often a topic was deleted and made again.
"""
