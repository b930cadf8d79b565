"""What can be wrong with an archive or with what it is made of."""

from __future__ import annotations


class ArchiveError(Exception):
    """Metadata that cannot be read, does not fit what came before, or is not there; the message says where."""
