"""Offsets and epochs of the log as the core keeps them."""

from __future__ import annotations

import pytest

from kraft_node.raft.log_view import EpochEnd, LogView, SnapshotId


def view() -> LogView:
    return LogView(0, 30, [(1, 0), (4, 10), (5, 20)])


@pytest.mark.parametrize(
    ("epoch", "end"), [(0, (0, 0)), (1, (1, 10)), (3, (1, 10)), (4, (4, 20)), (5, (5, 30)), (9, (5, 30))]
)
def test_end_of_epoch_names_the_largest_epoch_not_above(epoch: int, end: tuple[int, int]) -> None:
    assert view().end_of_epoch(epoch) == EpochEnd(*end)


def test_epochs_below_the_log_come_from_the_snapshot() -> None:
    log = LogView(10, 30, [(4, 10)], [SnapshotId(10, 3)])
    assert log.end_of_epoch(2) == EpochEnd(3, 10)
    assert log.last_epoch == 4
    assert LogView(10, 10, [], [SnapshotId(10, 3)]).last_epoch == 3


def test_snapshots_that_end_before_the_log_starts_are_stale() -> None:
    old, taken, bootstrap = SnapshotId(500, 4), SnapshotId(1000, 5), SnapshotId(0, 0)
    log = LogView(1000, 1010, [(6, 1000)], [old, taken, bootstrap])
    assert (log.snapshots, log.stale) == ([taken], [old])
    assert log.end_of_epoch(4) == EpochEnd(5, 1000), "the records before the start are of the snapshot's epoch"
    log.snapshot_stored(SnapshotId(700, 4))
    assert (log.snapshots, log.stale) == ([taken], [old, SnapshotId(700, 4)])


def test_a_reset_makes_earlier_snapshots_stale() -> None:
    log = LogView(0, 800, [(4, 0)], [SnapshotId(0, 0), SnapshotId(500, 4)])
    log.reset_to(SnapshotId(1000, 5))
    assert (log.snapshots, log.stale) == ([SnapshotId(1000, 5)], [SnapshotId(500, 4)])


@pytest.mark.parametrize("snapshots", [[], [SnapshotId(0, 0)], [SnapshotId(900, 4)]])
def test_a_log_that_starts_after_its_snapshots_is_refused(snapshots: list[SnapshotId]) -> None:
    with pytest.raises(AssertionError, match="a snapshot covers the offsets before the log's start"):
        LogView(1000, 1010, [(6, 1000)], snapshots)


def test_truncation_removes_later_epochs() -> None:
    log = view()
    log.truncated(20)
    assert (log.end_offset, log.flushed_offset, log.last_epoch) == (20, 20, 4)
    log.truncated(15)
    assert log.epochs == [(1, 0), (4, 10)]


def test_deleting_a_prefix_keeps_the_epoch_of_the_first_record() -> None:
    log = LogView(0, 30, [(1, 0), (4, 10), (5, 20)], [SnapshotId(12, 4), SnapshotId(15, 4)])
    log.prefix_deleted(SnapshotId(15, 4), 15)
    assert (log.snapshots, log.stale) == ([SnapshotId(15, 4)], []), "who deletes the log deletes the snapshots"
    assert log.epochs == [(4, 15), (5, 20)]
    assert log.start_offset == 15


def test_appends_leave_no_gap_and_epochs_never_go_back() -> None:
    log = view()
    with pytest.raises(AssertionError, match="no gaps"):
        log.appended(31, 32, 5)
    with pytest.raises(AssertionError, match="never go back"):
        log.appended(30, 31, 4)
    log.appended(30, 33, 7)
    assert log.flushed_offset == 30
    log.flushed(99)
    assert log.flushed_offset == 33
