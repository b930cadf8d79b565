"""Rows by key: `changes` of a batch, put together (`upserts`) in their `ordering`, and merged (`merging`) into files.

`tombstones` remembers deleted rows.
"""
