"""A small part of the exhaustive search, to keep it working; `make exhaustive` visits two million states."""

from __future__ import annotations

import pytest

from kraft_node.raft.election import Tally
from kraft_node.raft.node import RaftNode
from kraft_node.testing.raft.exhaustive import SearchResult, search


def _search(states: int) -> SearchResult:
    return search(states, say=lambda _text: None)


def test_no_order_of_events_breaks_a_law() -> None:
    result = _search(20_000)
    assert result.states == 20_000
    assert result.committed > 0, "it gets somewhere"


def test_a_forgotten_vote_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RaftNode, "remember_vote", lambda *_: None)
    with pytest.raises(AssertionError, match="law: "):
        _search(100_000)


def test_a_majority_of_one_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tally, "is_won", property(lambda tally: True in tally._answers.values()))
    reported: list[str] = []
    with pytest.raises(AssertionError, match="law: one leader per epoch"):
        search(100_000, say=reported.append)
    assert reported[-1].count("\n") >= 2, "the story ends with the event that broke the law"
