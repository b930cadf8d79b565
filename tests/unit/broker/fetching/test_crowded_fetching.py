"""Thousands of fetches that wait for one partition: the cost of an append, and the answer to each fetch."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from kraft_protocol.records.batch import build_batch
from tests.unit.broker.fetching.test_fetching import Rig, rows
from tests.unit.broker.world import topic_records


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.commit(topic_records("a", 1))
    return made


def test_an_append_costs_the_same_with_thousands_of_waiting_fetches(rig: Rig) -> None:
    for _ in range(2000):
        assert rig.fetch(("a", 0, 0), max_wait_ms=10_000) is None
    calls = 0

    def note(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        rig.append("a")
    finally:
        sys.setprofile(None)
    assert calls < 500
    rig.loop.run()
    assert len(rig.client.answers) == 2000
    assert all(rows(answer)["a", 0].records for answer in rig.client.answers)


def test_waiting_fetches_count_bytes_appended_before_their_turn(rig: Rig) -> None:
    size = len(build_batch([(None, b"x" * 10)], timestamp=5))
    for _ in range(20):
        assert rig.fetch(("a", 0, 0), max_wait_ms=10_000, min_bytes=3 * size) is None
    rig.append("a")
    rig.append("a")
    rig.loop.run()
    assert not rig.client.answers
    rig.append("a")
    rig.loop.run()
    assert len(rig.client.answers) == 20


def test_appends_cost_nothing_for_fetches_that_need_more_bytes(rig: Rig) -> None:
    """Each record of one producer woke a thousand fetches that waited for a megabyte."""
    for _ in range(1000):
        assert rig.fetch(("a", 0, 0), max_wait_ms=10_000, min_bytes=1 << 20) is None
    rig.append("a")
    rig.loop.run()  # the first few are a list, which is told of each append
    calls = 0

    def note(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        rig.append("a")
        rig.loop.run()
    finally:
        sys.setprofile(None)
    assert calls < 1000
    assert not rig.client.answers


def test_a_fetch_that_times_out_gets_appends_that_did_not_wake_it(rig: Rig) -> None:
    sessions = [rig.session(("a", 0, 0)).session_id for _ in range(20)]
    for session_id in sessions:
        answer = rig.fetch(session_id=session_id, session_epoch=1, max_wait_ms=300, min_bytes=1 << 20)
        assert answer is None
    rig.append("a")
    rig.loop.run()
    assert not rig.client.answers
    rig.loop.advance(301)
    rig.loop.run()
    assert len(rig.client.answers) == 20
    assert all(rows(answer)["a", 0].records for answer in rig.client.answers)


def test_the_next_fetch_of_a_session_gets_appends_that_did_not_wake_the_waiting_one(rig: Rig) -> None:
    """The next fetch of the session replaces the one that waits for a megabyte, and is content with a byte."""
    sessions = [rig.session(("a", 0, 0)).session_id for _ in range(20)]
    for session_id in sessions:
        assert rig.fetch(session_id=session_id, session_epoch=1, max_wait_ms=10_000, min_bytes=1 << 20) is None
    rig.append("a")
    rig.loop.run()
    for session_id in sessions:
        answer = rig.fetch(session_id=session_id, session_epoch=2, max_wait_ms=0)
        assert rows(answer)["a", 0].records
