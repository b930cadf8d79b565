"""Delivers committed records to the image and to the hooks: between steps of the core, in order.

Part of `driver`, which owns it. Records that this node appended itself are not read back from disk. Records of
other leaders are read and decoded piece by piece; a long catch-up yields to the event loop in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kraft_node.metadata.log_batches import decode_batches, iter_values
from kraft_node.metadata.partitions import MetadataError
from kraft_node.raft.membership.voter_history import NOT_IN_LOG
from kraft_protocol.buffers import FileSlice
from kraft_protocol.records.batch import iter_headers
from kraft_protocol.records.control import iter_control_records

if TYPE_CHECKING:
    from kraft_node.raft.log_view import SnapshotId
    from kraft_node.server.quorum.context import DriverContext
    from kraft_node.server.quorum.snapshots import SnapshotKeeper

READ_BYTES: Final = 1024 * 1024
"""Bytes of the log that are decoded at once when catching up."""

SLICE_RECORDS: Final = 5_000
"""Committed records that are applied before the loop gets its turn: some 30 ms."""


class _Own:
    """Records appended here and not delivered yet: they need not be read and decoded again."""

    __slots__ = ("epoch", "first_offset", "records", "timestamp_ms")

    def __init__(self, first_offset: int, epoch: int, timestamp_ms: int, records: Sequence[Any]) -> None:
        self.first_offset = first_offset
        self.epoch = epoch
        self.timestamp_ms = timestamp_ms
        self.records = records


class Commits:
    """Updates the image of one driver to the high watermark, and calls its hooks."""

    __slots__ = ("_delivering", "_driver", "_hook_calls", "_own", "_snapshot_ms", "_snapshots", "applied", "committed")

    def __init__(self, driver: DriverContext, snapshots: SnapshotKeeper) -> None:
        self._driver = driver
        self._snapshots = snapshots
        self._own: deque[_Own] = deque()
        self._hook_calls: deque[tuple[Callable[..., None], tuple[int, ...]]] = deque()
        self._delivering = False
        self._snapshot_ms = -1
        """The latest append time in the snapshot that is being loaded."""
        self.committed = 0
        self.applied = 0
        """Everything below it has been applied to the image (or is held in an open metadata transaction)."""

    # Reports of the core.

    def appended(self, first_offset: int, epoch: int, timestamp_ms: int, records: Sequence[Any]) -> None:
        """This node, as leader, has appended these records."""
        self._own.append(_Own(first_offset, epoch, timestamp_ms, records))

    def note_commit(self, high_watermark: int) -> None:
        """Apply the records below the new high watermark with the next hook calls; two calls in a row become one."""
        assert high_watermark >= self.committed, "law: the high watermark never decreases (contract 7)"
        self.committed = high_watermark
        entry = (self._apply_committed, (high_watermark,))
        if self._hook_calls and self._hook_calls[-1][0] == self._apply_committed:
            self._hook_calls[-1] = entry
        else:
            self._hook_calls.append(entry)

    def note_leader(self, epoch: int) -> None:
        """Call the hooks of `on_leader` after the commits before it."""
        self._hook_calls.append((self._notify_leadership, (0, epoch)))

    def note_lost(self, epoch: int) -> None:
        """Forget undelivered own records, and call the hooks of `on_lost_leadership` after the commits before it."""
        self._own.clear()
        self._hook_calls.append((self._notify_leadership, (1, epoch)))

    def note_leader_changed(self, leader_id: int, epoch: int) -> None:
        """Call the hooks of `on_leader_changed` in the order of events; -1: the leader is unknown."""
        self._hook_calls.append((self._notify_leader_changed, (leader_id, epoch)))

    # Calling the hooks.

    def _notify_leadership(self, which: int, epoch: int) -> None:
        driver = self._driver
        for hook in driver.on_lost_leadership if which else driver.on_leader:
            hook(epoch)

    def _notify_leader_changed(self, leader_id: int, epoch: int) -> None:
        for hook in self._driver.on_leader_changed:
            hook(leader_id, epoch)

    def deliver_soon(self) -> None:
        """Deliver later: the caller must not be notified of commits in the middle of its own work."""
        if self._hook_calls:
            self._driver.env.scheduler.call_soon(self.deliver)

    def deliver(self) -> None:
        """Call the hooks for the new commits and leaders, in order; a long catch-up yields to the loop in between."""
        driver = self._driver
        if self._delivering or driver.stepping:
            return
        self._delivering = True
        try:
            driver.guarded("delivering commits", self._run_hooks)
        finally:
            self._delivering = False

    def _run_hooks(self) -> None:
        driver = self._driver
        while self._hook_calls and not driver.failed:
            hook, what = self._hook_calls.popleft()
            hook(*what)
            if hook == self._apply_committed and self.applied < what[0]:
                self._hook_calls.appendleft((hook, what))
                driver.env.scheduler.call_soon(self.deliver)
                break

    # Applying.

    def _apply_committed(self, high_watermark: int) -> None:
        driver = self._driver
        budget = SLICE_RECORDS
        while self.applied < high_watermark and budget > 0:
            before = self.applied
            self._apply_next(high_watermark)
            budget -= self.applied - before
        driver.loader.publish()
        last = self.applied - 1
        for hook in driver.on_commit:
            hook(last)
        self._snapshots.take_if_due()

    def _apply_next(self, high_watermark: int) -> None:
        own, loader = self._own, self._driver.loader
        while own and own[0].first_offset < self.applied:
            own.popleft()
        if own and own[0].first_offset == self.applied:
            batch = own.popleft()
            end = batch.first_offset + len(batch.records)
            assert end <= high_watermark, "law: records that are appended together are committed together"
            loader.apply(list(enumerate(batch.records, batch.first_offset)), batch.epoch, batch.timestamp_ms)
            self.applied = end
            return
        before = self.applied
        stop = min(high_watermark, own[0].first_offset) if own else high_watermark
        for read in decode_batches(self._read(self.applied)):
            if read.last_offset >= stop:
                break
            records = [(offset, record) for offset, record in read.records if offset >= self.applied]
            if records:
                loader.apply(records, read.epoch, read.timestamp_ms)
            else:
                loader.skip(read.last_offset, read.epoch, read.timestamp_ms)
            self.applied = read.last_offset + 1
            if self.applied >= stop or self.applied - before >= SLICE_RECORDS:
                return
        if self.applied == before:
            raise MetadataError(f"the log has no batch at offset {before} that ends below {stop}")

    def _read(self, offset: int) -> Any:
        found = self._driver.storage.read(offset, READ_BYTES)
        return found.read() if isinstance(found, FileSlice) else found

    # The content of the disk at start, and downloaded snapshots.

    def load_latest(self) -> None:
        """Load the latest snapshot, and note the voters that the log after it states."""
        storage = self._driver.storage
        snapshots = storage.snapshots()
        if snapshots:
            self.load_snapshot(snapshots[-1].id)
        else:
            self.applied = storage.start_offset
        self._scan_control_records()

    def _scan_control_records(self) -> None:
        """Find the voters in the log after the snapshot: they count before other records are read."""
        driver = self._driver
        position = self.applied
        while position < driver.storage.end_offset:
            data = self._read(position)
            for header in iter_headers(data):
                if header.is_control:
                    for control in iter_control_records(data, header):
                        driver.history.take(control.offset, control.type, control.value)
                position = header.next_offset

    def load_snapshot(self, snapshot: SnapshotId) -> None:
        """Replace the image by the snapshot. Raises OSError, ValueError, MetadataError."""
        driver = self._driver
        self._own.clear()
        if snapshot.is_bootstrap:
            # Its records are for the first controller to write, and not part of the metadata yet.
            for _ in self._values_in(snapshot, NOT_IN_LOG):
                pass
            self.applied = driver.storage.start_offset
            return
        self._snapshot_ms = -1
        values = self._values_in(snapshot, snapshot.end_offset - 1)
        driver.loader.load_values(values, snapshot.end_offset - 1, snapshot.epoch, lambda: self._snapshot_ms)
        self.applied = snapshot.end_offset
        self.committed = max(self.committed, snapshot.end_offset)
        self._snapshots.new_bytes = 0
        driver.loader.publish(is_snapshot=True)

    def _values_in(self, snapshot: SnapshotId, control_offset: int) -> Iterator[bytes]:
        """The encoded records of a snapshot; the voters in its control records go to the voters' history."""
        driver = self._driver
        for data in driver.storage.snapshot_batches(snapshot):
            for header in iter_headers(data):
                self._snapshot_ms = max(self._snapshot_ms, header.max_timestamp)
                if header.is_control:
                    for control in iter_control_records(data, header):
                        driver.history.take(control_offset, control.type, control.value)
                else:
                    yield from iter_values(data, header)
