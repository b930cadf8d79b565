"""Errors of an archive and its sources."""

from __future__ import annotations


class ArchiveError(Exception):
    """Metadata is missing, cannot be read, or does not continue the archive; the message names the place."""
