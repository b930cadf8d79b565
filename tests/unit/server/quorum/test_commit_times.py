"""The duration and rate of commits (KIP-631, MetadataCommitLatencyMs and MetadataCommitRatePerSec)."""

from __future__ import annotations

from kraft_node.server.quorum.commit_times import WAITING_MAX, CommitTimes


def test_an_append_is_measured_when_its_last_record_is_committed() -> None:
    times = CommitTimes()
    times.start(10)
    times.appended(12, now_ms=1_000)
    times.advanced(12, now_ms=1_003)
    assert (times.committed, times.latency_ms.count) == (2, 0)
    times.advanced(13, now_ms=1_005)
    assert (times.committed, times.latency_ms.count, times.latency_ms.total) == (3, 1, 5)


def test_offsets_before_the_start_are_not_counted() -> None:
    times = CommitTimes()
    times.start(100)
    times.advanced(90, now_ms=0)
    times.advanced(101, now_ms=0)
    assert times.committed == 1


def test_an_append_committed_by_another_leader_is_not_measured() -> None:
    times = CommitTimes()
    times.appended(0, now_ms=0)
    times.lost()
    times.advanced(1, now_ms=9_000)
    assert (times.committed, times.latency_ms.count) == (1, 0)


def test_the_number_of_measured_appends_is_bounded() -> None:
    times = CommitTimes()
    for offset in range(WAITING_MAX + 5):
        times.appended(offset, now_ms=0)
    times.advanced(WAITING_MAX + 5, now_ms=1)
    assert times.latency_ms.count == WAITING_MAX
