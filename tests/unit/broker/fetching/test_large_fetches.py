"""Fetches of very many partitions run in steps; answers, watchers and sessions stay the same."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.base.turns import STEPS_A_TURN, Turns
from kraft_node.broker.fetch import large, session
from kraft_node.broker.fetch.session import ROWS
from kraft_node.partition.watching import FEW, Watchers, added, removed
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import FetchRequest, FetchResponse
from tests.unit.broker.fetching.test_fetching import Rig, rows
from tests.unit.broker.world import Loop, make_env, topic_records

COUNT = 5 * ROWS
STEP = large.STEP


def many(count: int = COUNT, topic: str = "a", offset: int = 0) -> list[Any]:
    row = FetchRequest.FetchPartition
    return [
        FetchRequest.FetchTopic(
            topic=topic, partitions=[row(i, fetch_offset=offset, partition_max_bytes=1 << 20) for i in range(count)]
        )
    ]


class Large(Rig):
    """A topic of very many partitions; its steps and calls are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.commit(topic_records("a", 1, COUNT))
        self.read: list[int] = []
        real = self.replicas.hosted_in

        def counted(*args: Any) -> Any:
            self.read.append(args[0][1])
            return real(*args)

        self.replicas.hosted_in = counted  # type: ignore[method-assign]

    def ask(self, version: int = 12, **fields: Any) -> Any:
        fields = {"topics": many(), "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 30, **fields}
        return self.fetches(self.client.context(1, version), FetchRequest(**fields))

    def turn(self) -> None:
        """One turn of the loop: calls that it adds wait for the next turn."""
        for call in self.loop.take():
            call.run()

    def answer(self) -> Any:
        self.loop.run()
        return self.client.answers.pop()

    def watched(self) -> int:
        return sum(self.replicas.leader("a", i).watchers is not None for i in range(COUNT))


@pytest.fixture
def rig() -> Large:
    return Large()


def test_very_many_partitions_are_read_in_steps(rig: Large) -> None:
    assert rig.ask(max_wait_ms=0) is None
    assert rig.read == [], "nothing is read at once"
    most = before = 0
    while not rig.client.answers:
        rig.turn()
        most, before = max(most, len(rig.read) - before), len(rig.read)
    assert most <= STEPS_A_TURN * STEP
    assert rig.read == list(range(COUNT))
    assert sorted(index for _, index in rows(rig.client.answers[0])) == list(range(COUNT))


def test_the_answer_in_steps_equals_the_answer_in_one_go(rig: Large) -> None:
    sizes = {index: rig.append("a", index) for index in (0, STEP - 1, STEP, COUNT - 1)}
    rig.ask()
    found = rig.answer()
    assert [topic.topic for topic in found.responses] == ["a"]
    assert {i: len(row.records) for (_, i), row in rows(found).items() if row.records} == sizes
    few = rig.fetch(*(("a", index, 0) for index in sizes))
    assert {key: row for key, row in rows(found).items() if row.records} == rows(few)


def test_the_bytes_of_an_answer_are_bounded_over_all_steps(rig: Large) -> None:
    size = rig.append("a", 0)
    for index in range(1, COUNT, STEP):
        rig.append("a", index)
    rig.ask(max_bytes=3 * size)
    filled = [row for row in rows(rig.answer()).values() if row.records]
    assert len(filled) == 3


def test_an_append_wakes_a_fetch_of_very_many_partitions(rig: Large) -> None:
    rig.ask(max_wait_ms=10_000)
    rig.loop.run()
    assert not rig.client.answers
    rig.append("a", COUNT - 1)
    assert len(rows(rig.answer())["a", COUNT - 1].records) > 0
    assert rig.watched() == 0
    assert not rig.fetches.waiting


@pytest.mark.parametrize("index", [0, COUNT - 1])
def test_an_append_between_two_steps_is_not_missed(rig: Large, index: int) -> None:
    rig.ask(max_wait_ms=10_000)
    rig.turn()
    assert 0 < len(rig.read) < COUNT
    rig.append("a", index)
    assert len(rows(rig.answer())["a", index].records) > 0


def test_appends_between_two_steps_count_once(rig: Large) -> None:
    size = len(rig.logs) or rig.append("a", 0)
    rig.ask(max_wait_ms=10_000, min_bytes=3 * size)
    rig.turn()
    rig.append("a", 0)
    rig.loop.run()
    assert not rig.client.answers
    rig.append("a", COUNT - 1)
    assert sum(len(row.records) for row in rows(rig.answer()).values()) == 3 * size


def test_a_fetch_is_answered_if_its_time_ends_while_partitions_are_read(rig: Large) -> None:
    rig.ask(max_wait_ms=500)
    rig.loop.run(499)
    assert not rig.client.answers
    rig.loop.run(1)
    assert len(rows(rig.answer())) == COUNT
    assert rig.watched() == 0


def test_a_fetch_that_times_out_between_steps_is_answered_at_the_end(rig: Large) -> None:
    rig.ask(max_wait_ms=500)
    rig.turn()
    assert rig.watched() > 0
    [fetch] = rig.fetches.waiting
    fetch._expired()
    assert len(rows(rig.answer())) == COUNT
    assert rig.watched() == 0


def test_the_steps_of_a_disconnected_client_stop(rig: Large) -> None:
    rig.ask(max_wait_ms=10_000)
    rig.turn()
    rig.client.closed = True
    read = len(rig.read)
    rig.loop.run()
    assert len(rig.read) == read
    assert rig.watched() == 0
    assert not rig.fetches.waiting


def test_a_session_of_very_many_partitions_returns_new_records(rig: Large) -> None:
    rig.ask(session_epoch=0, max_wait_ms=0)
    opened = rig.answer()
    assert opened.session_id > 0
    assert len(rows(opened)) == COUNT
    rig.append("a", 7)
    news = rig.ask(session_id=opened.session_id, session_epoch=1, topics=[])
    assert list(rows(news)) == [("a", 7)], "few that have news are answered at once"
    for index in range(COUNT):
        rig.append("a", index)
    read = len(rig.read)
    assert rig.ask(session_id=opened.session_id, session_epoch=2, topics=[]) is None
    assert len(rig.read) == read
    assert len(rows(rig.answer())) == COUNT


def test_very_many_partitions_are_forgotten_in_steps(rig: Large) -> None:
    rig.ask(session_epoch=0, max_wait_ms=0)
    opened = rig.answer()
    forgotten = [FetchRequest.ForgottenTopic("a", partitions=list(range(COUNT - 1)))]
    asked = {"session_id": opened.session_id, "topics": [], "forgotten_topics_data": forgotten}
    assert rig.ask(session_epoch=1, **asked, max_wait_ms=0) is None
    assert rig.fetches.sessions.partition_count == COUNT, "nothing is forgotten at once"
    assert rows(rig.answer()) == {}
    assert rig.fetches.sessions.partition_count == 1
    assert rig.watched() == 1


def test_a_closed_session_is_released_in_steps(rig: Large) -> None:
    rig.ask(session_epoch=0, max_wait_ms=0)
    opened = rig.answer()
    assert rig.watched() == COUNT
    rig.fetch(("a", 0, 0), session_id=opened.session_id, session_epoch=-1, max_wait_ms=0)
    assert rig.watched() > 0
    rig.loop.run()
    assert rig.watched() == 0
    assert rig.fetches.sessions.partition_count == 0


def test_a_newer_request_ends_the_older_one_and_their_session(rig: Large) -> None:
    rig.ask(session_epoch=0, max_wait_ms=0)
    opened = rig.answer()
    rig.ask(session_id=opened.session_id, session_epoch=1)
    rig.turn()
    newer = rig.ask(session_id=opened.session_id, session_epoch=2)
    assert newer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert rig.answer() == FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    assert len(rig.fetches.sessions) == 0
    assert rig.watched() == 0


def test_a_newer_request_ends_a_waiting_one_of_very_many_partitions(rig: Large) -> None:
    rig.ask(session_epoch=0, max_wait_ms=0)
    opened = rig.answer()
    rig.ask(session_id=opened.session_id, session_epoch=1, topics=many(offset=0), max_wait_ms=10_000)
    rig.loop.run()
    assert not rig.client.answers
    assert rig.ask(session_id=opened.session_id, session_epoch=2, topics=[], max_wait_ms=10_000) is None
    assert rig.answer() == FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    rig.append("a", 3)
    assert len(rows(rig.answer())["a", 3].records) > 0


def test_permissions_for_very_many_topics_are_checked_in_steps(rig: Large) -> None:
    rig.commit([record for i in range(ROWS + 1) for record in topic_records(f"t{i}", 10 + i)])
    asked: list[int] = []

    def judge(_: Any, keys: Any) -> frozenset[Any]:
        asked.append(len(list(keys)))
        return frozenset(key for key in keys if key == "t3")

    topics = [topic for i in range(ROWS + 1) for topic in many(1, f"t{i}")]
    request = FetchRequest(topics=topics, max_wait_ms=0, min_bytes=1, max_bytes=1 << 30)
    assert rig.fetches(rig.client.context(1, 12), request, judge) is None
    found = rows(rig.answer())
    assert max(asked) == STEP
    assert {key: row.error_code for key, row in found.items() if row.error_code} == {
        ("t3", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED
    }


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "not ready"), RuntimeError("a defect")])
def test_a_failure_in_a_step_ends_request_and_session(rig: Large, error: Exception) -> None:
    rig.ask(session_epoch=0, max_wait_ms=0)
    opened = rig.answer()

    def judge(_: Any, __: Any) -> Any:
        raise error

    request = FetchRequest(session_id=opened.session_id, session_epoch=1, topics=many(), max_wait_ms=500)
    assert rig.fetches(rig.client.context(1, 12), request, judge) is None
    assert rig.answer().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(rig.fetches.sessions) == 0
    rig.loop.run()
    assert rig.watched() == 0


def test_a_fenced_broker_refuses_very_many_partitions_in_steps(rig: Large) -> None:
    rig.fence.fenced = True
    assert rig.ask() is None
    assert {row.error_code for row in rows(rig.answer()).values()} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert rig.read == []


def test_the_number_of_partitions_in_sessions_is_bounded(rig: Large, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PARTITIONS_MAX", COUNT + 10)
    rig.ask(session_epoch=0, max_wait_ms=0)
    first = rig.answer()
    assert rig.fetch(*(("a", i, 0) for i in range(11)), session_epoch=0, max_wait_ms=0).session_id == 0
    second = rig.fetch(*(("a", i, 0) for i in range(10)), session_epoch=0, max_wait_ms=0)
    assert second.session_id > 0
    more = rig.fetch(("a", 10, 0), session_id=second.session_id, session_epoch=1, max_wait_ms=0)
    assert more.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert rig.fetches.sessions.partition_count == COUNT
    assert first.session_id > 0


def test_followers_get_a_session_beyond_the_bound(rig: Large, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PARTITIONS_MAX", 0)
    assert rig.fetch(("a", 0, 0), session_epoch=0, max_wait_ms=0, replica_id=2).session_id > 0


def test_thousands_of_fetches_for_one_partition_are_answered_in_turns(rig: Large) -> None:
    waiting = 20 * STEPS_A_TURN
    for _ in range(waiting):
        assert rig.fetch(("a", 0, 0)) is None
    rig.append("a", 0)
    for turn in range(1, 5):
        rig.turn()
        assert len(rig.client.answers) <= turn * STEPS_A_TURN
    assert rig.client.answers
    rig.loop.run()
    assert len(rig.client.answers) == waiting


def test_thousands_of_fetches_run_out_of_time_in_turns(rig: Large) -> None:
    waiting = 20 * STEPS_A_TURN
    for _ in range(waiting):
        assert rig.fetch(("a", 0, 0)) is None
    for call in rig.loop.take():
        call.run()
    rig.turn()
    assert 0 < len(rig.client.answers) <= STEPS_A_TURN
    rig.loop.run()
    assert len(rig.client.answers) == waiting
    assert rig.replicas.leader("a", 0).watchers is None


class Reader:
    """A watcher that counts comparisons."""

    compared = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return hash(self.number)

    def __eq__(self, other: object) -> bool:
        Reader.compared += 1
        return self is other

    def partition_changed(self, appended_bytes: int) -> None: ...

    def high_watermark_moved(self) -> None: ...


def test_removing_a_watcher_costs_the_same_with_any_number_of_watchers() -> None:
    readers = [Reader(i) for i in range(5_000)]
    turns = Turns(make_env(Loop()))
    watchers: Watchers = None
    for reader in readers:
        watchers = added(watchers, reader, turns)
    assert list(watchers or ()) == readers
    Reader.compared = 0
    for reader in reversed(readers):
        watchers = removed(watchers, reader)
    assert watchers is None
    assert Reader.compared <= 2 * len(readers) + FEW * FEW
