"""A small part of the exhaustive search, to keep it in working order; `make exhaustive` goes to a million states."""

from __future__ import annotations

from kraft_node.testing.raft.exhaustive import search


def test_no_order_of_events_breaks_a_law() -> None:
    result = search(2_000, say=lambda _text: None)
    assert result.states == 2_000
    assert result.committed > 0, "it gets somewhere"
