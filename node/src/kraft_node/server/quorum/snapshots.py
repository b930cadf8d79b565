"""Takes snapshots of the committed metadata when due, and deletes old snapshots with the log before them (KIP-630).

Part of `driver`, which owns it. `raft.snapshots.SnapshotPolicy` decides when a snapshot is due and which
snapshots may be deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.base import rare
from kraft_node.metadata.snapshot_writer import SnapshotWriting
from kraft_node.raft import events
from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.progress import OBSERVERS_MAX
from kraft_node.raft.snapshots import RETENTION_CHECK_MS, SnapshotPolicy

if TYPE_CHECKING:
    from kraft_node.base.env import Timer
    from kraft_node.server.quorum.context import DriverContext


class SnapshotKeeper:
    """The snapshots of one driver's log."""

    __slots__ = ("_cleaner", "_driver", "_last_ms", "_stopped", "_writing", "new_bytes", "policy")

    def __init__(self, driver: DriverContext, policy: SnapshotPolicy) -> None:
        self._driver = driver
        self.policy = policy
        self.new_bytes = 0
        """Bytes written to the log since the last snapshot."""
        self._last_ms = 0
        self._writing: SnapshotWriting | None = None
        self._cleaner: Timer | None = None
        self._stopped = False

    def start(self, new_bytes: int) -> None:
        """Look for due and old snapshots from now on, every minute. `new_bytes`: those since the last snapshot."""
        self.new_bytes = new_bytes
        self._last_ms = self._driver.env.clock.monotonic_ms()
        self._watch()

    def stop(self) -> None:
        """The node stops: delete a half-written file."""
        self._stopped = True
        if self._cleaner is not None:
            self._cleaner.cancel()
        self.replaced()

    def replaced(self) -> None:
        """Stop writing the snapshot: it is deleted, or a downloaded snapshot replaces it.

        A snapshot with a running fsync is still reported, and the core finds out that it is stale. Raises OSError.
        """
        if self._writing is not None and self._writing.abandon():
            self._writing = None

    def _watch(self) -> None:
        self._cleaner = self._driver.env.scheduler.call_later(RETENTION_CHECK_MS, self._look)

    def _look(self) -> None:
        if not self._driver.failed:
            self._watch()
            self._driver.guarded("taking a snapshot", self.take_if_due)
            self._driver.guarded("retention", self.drop_old)

    def take_if_due(self) -> None:
        """Called after each commit, and every minute."""
        driver = self._driver
        if self._stopped or driver.image.offset < 0:
            return
        is_due = self.policy.is_due(self.new_bytes, driver.env.clock.monotonic_ms() - self._last_ms)
        if is_due or rare.takes("quorum snapshot"):
            self.take()

    def take(self) -> None:
        """Start a snapshot of the committed metadata, written in slices between other work; one at a time.

        Raises OSError.
        """
        driver = self._driver
        image = driver.image
        identity = SnapshotId(image.offset + 1, max(image.epoch, 0))
        if self._writing is not None or identity.end_offset <= 0:
            return
        if any(found.id == identity for found in driver.storage.snapshots()):
            return
        self.new_bytes = 0
        self._last_ms = driver.env.clock.monotonic_ms()
        self._writing = SnapshotWriting(
            driver.env, driver.storage, image, identity, self._written, driver.history.records(identity.end_offset)
        )
        self._writing.start()

    def _written(self, snapshot: SnapshotId, error: BaseException | None) -> None:
        self._writing = None
        if error is not None:
            self._driver.fail(f"writing snapshot {tuple(snapshot)}", error)
        else:
            self._driver.step(events.SnapshotStored(snapshot))

    def drop_old(self) -> None:
        """Delete old snapshots, and the log before the oldest kept one (contract 9)."""
        driver = self._driver
        # The core's view decides: a snapshot with a name that is not durable yet must not cover the log before it.
        known = driver.node.log.snapshots
        found = [file for file in driver.storage.snapshots() if file.id.is_bootstrap or file.id in known]
        first = self.policy.first_to_keep(
            [(file.id, file.size_bytes, file.mtime_ms) for file in found],
            driver.storage.size_bytes,
            driver.env.clock.wall_ms(),
        )
        if first is None:
            return
        for file in found:
            if file.id < first:
                driver.storage.remove_snapshot(file.id)
        start = driver.storage.delete_before(first.end_offset)
        driver.step(events.SnapshotsDropped(first, start))


class SnapshotLags:
    """The end of each replica's latest snapshot, from its fetches and heartbeats; soft state (KIP-631)."""

    __slots__ = ("_driver", "_ends")

    def __init__(self, driver: DriverContext) -> None:
        self._driver = driver
        self._ends: dict[int, int] = {}

    def note(self, replica_id: int, end_offset: int | None) -> None:
        """A replica has reported its snapshot; None: it does not report any, like Apache Kafka's nodes."""
        known = self._ends
        if end_offset is not None and replica_id >= 0 and (replica_id in known or len(known) < OBSERVERS_MAX):
            known[replica_id] = end_offset

    @property
    def own_end(self) -> int:
        """The end of this node's own snapshot; 0 without a snapshot."""
        latest = self._driver.node.log.latest_snapshot
        return 0 if latest is None else latest.end_offset

    def by_replica(self) -> dict[int, int]:
        """Records committed since each replica's snapshot. Only the leader knows of others."""
        driver = self._driver
        core = driver.node
        if not core.is_leader:
            return {}
        own = {driver.local.id: self.own_end}
        progress = core.leader.progress
        present = {*progress.voters, *(key.id for key in progress.observers)}
        known = {node_id: offset for node_id, offset in self._ends.items() if node_id in present}
        return {node_id: max(0, core.high_watermark - offset) for node_id, offset in sorted((known | own).items())}
