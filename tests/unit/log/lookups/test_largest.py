"""The largest timestamp of a segment."""

from __future__ import annotations

from tests.unit.log.world import LogWorld


def test_an_empty_segment_has_no_timestamp() -> None:
    """Not that of its file: a segment that was never written to must not expire."""
    assert LogWorld().open().active.largest_timestamp() == -1
