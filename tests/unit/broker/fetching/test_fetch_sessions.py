"""Fetch sessions: epochs, forgotten partitions, a bounded number of sessions, and evictions."""

from __future__ import annotations

from types import SimpleNamespace as Obj
from typing import Any

from kraft_node.base.turns import Turns
from kraft_node.broker.fetch.session import SESSION_IDLE_MS_MIN, FetchSession, SessionCache
from kraft_protocol.client.fetch_session import EPOCH_MAX, next_epoch
from kraft_protocol.errors import ErrorCode
from tests.stopped_time import SeededRandom
from tests.unit.broker.world import Loop, make_env


def cache_of(slots: int) -> SessionCache:
    return SessionCache(slots, SeededRandom(), Turns(make_env(Loop())))


def wanted(index: int, offset: int = 0) -> Any:
    return Obj(
        partition=index,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=100,
        current_leader_epoch=-1,
        last_fetched_epoch=-1,
    )


def session_of(size: int, *, privileged: bool = False) -> FetchSession:
    session = FetchSession(by_topic_id=False, replica_id=2 if privileged else -1)
    session.update([Obj(topic="t", topic_id=b"", partitions=[wanted(i) for i in range(size)])])
    return session


def test_a_kept_session_gets_an_id_and_expects_epoch_one() -> None:
    cache = cache_of(10)
    session = session_of(3)
    assert cache.keep(session, 0)
    assert session.id > 0
    assert cache.resume(session.id, 1, by_topic_id=False, now_ms=1) is session
    assert session.epoch == 2
    assert cache.partition_count == 3


def test_a_wrong_session_id_epoch_or_topic_id_is_refused() -> None:
    cache = cache_of(10)
    session = session_of(1)
    cache.keep(session, 0)
    assert cache.resume(session.id + 1, 1, by_topic_id=False, now_ms=1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.resume(session.id, 7, by_topic_id=False, now_ms=1) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.resume(session.id, 1, by_topic_id=True, now_ms=1) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    cache.close(session.id)
    assert cache.resume(session.id, 1, by_topic_id=False, now_ms=1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 0


def test_epochs_wrap_to_one() -> None:
    assert [next_epoch(0), next_epoch(1), next_epoch(EPOCH_MAX)] == [1, 2, 1]


def test_forgotten_partitions_leave_the_session() -> None:
    session = session_of(3)
    session.forget([Obj(topic="t", topic_id=b"", partitions=[0, 2, 9])])
    assert list(session.partitions) == [("t", 1)]
    assert list(session.ready) == [("t", 1)]


def test_a_changed_offset_makes_a_partition_ready_again() -> None:
    session = session_of(2)
    session.ready.clear()
    session.update([Obj(topic="t", topic_id=b"", partitions=[wanted(1, 55)])])
    assert [(p.key, p.offset) for p in session.ready.values()] == [(("t", 1), 55)]


def test_a_repeated_offset_gets_the_high_watermark_again() -> None:
    """A follower that restarted during a fetch ignored the answer (simulated clusters, seed 378)."""
    session = session_of(2)
    for partition in session.partitions.values():
        partition.sent_high_watermark = partition.sent_start_offset = 7
    session.update([Obj(topic="t", topic_id=b"", partitions=[wanted(0), wanted(1, 55)])])
    assert [p.sent_high_watermark for p in session.partitions.values()] == [-1, 7]
    assert [p.sent_start_offset for p in session.partitions.values()] == [-1, 7]


def test_a_full_cache_keeps_young_sessions() -> None:
    cache = cache_of(2)
    assert cache.keep(session_of(1), 0)
    assert cache.keep(session_of(1), 0)
    assert not cache.keep(session_of(50), SESSION_IDLE_MS_MIN)
    assert (len(cache), cache.evictions) == (2, 0)


def test_idle_sessions_are_evicted_first() -> None:
    cache = cache_of(2)
    large, small = session_of(100, privileged=True), session_of(1)
    cache.keep(large, 0)
    cache.keep(small, 0)
    cache.resume(small.id, 1, by_topic_id=False, now_ms=10)
    assert cache.keep(session_of(1), SESSION_IDLE_MS_MIN + 1)
    assert cache.resume(large.id, 1, by_topic_id=False, now_ms=0) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert large.partitions == {}


def test_a_larger_session_displaces_a_smaller_old_one() -> None:
    cache = cache_of(2)
    small, large = session_of(2), session_of(10)
    cache.keep(large, 0)
    cache.keep(small, 0)
    late = SESSION_IDLE_MS_MIN + 5
    for session in (large, small):
        cache.resume(session.id, 1, by_topic_id=False, now_ms=late)
    assert not cache.keep(session_of(2), late)
    assert cache.keep(session_of(3), late)
    assert small.partitions == {}
    assert large.partitions


def test_a_follower_displaces_a_consumer_at_once() -> None:
    cache = cache_of(1)
    consumer = session_of(100)
    cache.keep(consumer, 0)
    assert cache.keep(session_of(1, privileged=True), 1)
    assert consumer.partitions == {}
    assert not cache.keep(session_of(1000), 2)


def test_without_slots_no_session_is_kept() -> None:
    cache = cache_of(0)
    session = session_of(1)
    assert not cache.keep(session, 0)
    assert session.id == 0


def test_a_changed_number_of_partitions_counts_for_the_next_eviction() -> None:
    cache = cache_of(2)
    grown, other = session_of(1), session_of(5)
    for session in (grown, other):
        cache.keep(session, 0)
    late = SESSION_IDLE_MS_MIN + 5
    for session in (grown, other):
        cache.resume(session.id, 1, by_topic_id=False, now_ms=late)
    grown.update([Obj(topic="t", topic_id=b"", partitions=[wanted(i) for i in range(9)])])
    assert cache.count(grown)
    assert cache.keep(session_of(6), late)
    assert other.partitions == {}
    assert len(grown.partitions) == 9


class CountedSession(FetchSession):
    """A session that counts how often sessions are compared."""

    __slots__ = ()
    looks = 0

    @property
    def privileged(self) -> bool:
        CountedSession.looks += 1
        return False


def test_a_full_cache_refuses_a_session_without_a_look_at_all_others() -> None:
    """With more readers than slots, each fetch of the others asks for a session."""
    cache = cache_of(500)
    for _ in range(500):
        session = CountedSession(by_topic_id=False)
        session.update([Obj(topic="t", topic_id=b"", partitions=[wanted(0)])])
        assert cache.keep(session, 0)
    late = SESSION_IDLE_MS_MIN + 5
    for session_id in list(cache._sessions):
        cache.resume(session_id, 1, by_topic_id=False, now_ms=late)
    CountedSession.looks = 0
    for _ in range(10):
        assert not cache.keep(session_of(1), late)
    assert CountedSession.looks < 100
