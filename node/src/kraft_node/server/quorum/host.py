"""Carries out the work of one driver's core (`raft.ready.Host`): on the storage, the network and the timer.

Part of `driver`, which owns it. An exception here ends the node (contract 10): the driver reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kraft_node.metadata.log_batches import data_batch, leader_change_batch, voters_batch
from kraft_node.raft import events, wire_form
from kraft_node.raft import ready as do
from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.membership.voter_history import encode_kraft_version, encode_voters
from kraft_node.raft.messages import POSITION_OUT_OF_RANGE, SNAPSHOT_NOT_FOUND, VoterChangeReply
from kraft_protocol.records.batch import iter_headers
from kraft_protocol.records.control import ControlType, iter_control_records

if TYPE_CHECKING:
    from kraft_node.base.env import Timer
    from kraft_node.raft.membership.quorum import QuorumState, VoterSet
    from kraft_node.raft.storage import SnapshotWriter
    from kraft_node.server.quorum.commit_times import CommitTimes
    from kraft_node.server.quorum.commits import Commits
    from kraft_node.server.quorum.context import DriverContext
    from kraft_node.server.quorum.peers import RaftPeers
    from kraft_node.server.quorum.snapshots import SnapshotKeeper

STATED_VERSION: Final = 1
"""The kraft.version of voters that the log states."""
LOG_LANE: Final = "metadata-log"
STATE_LANE: Final = "quorum-state"
SNAPSHOT_LANE: Final = "metadata-snapshot"


class RaftHost:
    """The host of one driver's core."""

    __slots__ = (
        "_commit_times",
        "_commits",
        "_download",
        "_driver",
        "_history",
        "_peers",
        "_snapshots",
        "_timer",
        "_unsaved",
        "held",
    )

    def __init__(
        self,
        driver: DriverContext,
        peers: RaftPeers,
        commits: Commits,
        commit_times: CommitTimes,
        snapshots: SnapshotKeeper,
    ) -> None:
        self._driver = driver
        self._history = driver.history
        self._peers = peers
        self._commits = commits
        self._commit_times = commit_times
        self._snapshots = snapshots
        self.held: list[do.Message] = []
        self._download: SnapshotWriter | None = None
        self._timer: Timer | None = None
        self._unsaved: QuorumState | None = None
        """The state that is being saved, until it is on disk."""

    def _in_background(self, lane: str, what: str, job: Callable[[], object], then: Callable[[], None]) -> None:
        """Run `job` in the lane, and `then` on the loop, unless the job failed."""
        driver = self._driver

        def done(result: Any) -> None:
            if isinstance(result, BaseException):
                driver.fail(what, result)
            else:
                driver.guarded(what, then)

        driver.env.background.submit(lane, job, done)

    # The log.

    def truncate(self, offset: int) -> None:
        """Truncate the log in the storage, and forget the voters that it stated from there on."""
        driver = self._driver
        committed = self._commits.committed
        law = f"law: committed records are never truncated (contract 7): to offset {offset}, below {committed}"
        assert offset >= committed, law
        driver.storage.truncate(offset)
        self._history.truncated(offset)

    def append(self, batch: do.LogAppend) -> None:
        """Encode the batch, unless it was fetched, and write it into the page cache."""
        _APPEND[type(batch)](self, batch)

    def _append_leader_change(self, batch: do.AppendLeaderChange) -> None:
        driver = self._driver
        now = driver.env.clock.wall_ms()
        facts = [] if batch.stated is None else _facts(batch.stated, STATED_VERSION)
        data = leader_change_batch(batch.offset, batch.epoch, driver.local.id, batch.voters, batch.granting, now, facts)
        self._write(batch.offset, data)
        for offset, (kind, value) in enumerate(facts, batch.offset + 1):
            self._history.take(offset, kind, value)

    def _append_voters(self, batch: do.AppendVoters) -> None:
        facts = _facts(batch.voters, batch.kraft_version)
        self._write(batch.offset, voters_batch(batch.offset, batch.epoch, facts, self._driver.env.clock.wall_ms()))
        for offset, (kind, value) in enumerate(facts, batch.offset):
            self._history.take(offset, kind, value)

    def _append_records(self, batch: do.Append) -> None:
        now = self._driver.env.clock.wall_ms()
        self._write(batch.offset, data_batch(batch.records, batch.offset, batch.epoch, now))

    def _append_fetched(self, batch: do.AppendFetched) -> None:
        self._write(batch.offset, batch.records)
        for header in iter_headers(batch.records):
            if header.is_control:
                for control in iter_control_records(batch.records, header):
                    self._history.take(control.offset, control.type, control.value)

    def _write(self, offset: int, data: Any) -> None:
        driver = self._driver
        assert offset == driver.storage.end_offset, f"law: core and storage agree on the log's end ({offset})"
        driver.storage.append([data])
        self._snapshots.new_bytes += len(data)

    def flush(self, offset: int) -> None:
        """Fsync the log in its lane; never blocks the loop."""
        driver = self._driver
        flushed = events.Flushed(offset)
        self._in_background(LOG_LANE, "flushing the log", driver.storage.begin_flush(), lambda: driver.step(flushed))

    # Snapshots.

    def write_part(self, part: do.SnapshotPart) -> None:
        """Write to the `.part` file, on the loop. A new download abandons an unfinished one."""
        if part.position == 0:
            if self._download is not None:
                self._download.abandon()
            self._download = self._driver.storage.create_snapshot(part.snapshot)
        assert self._download is not None, "law: a snapshot is fetched from its beginning"
        self._download.append(part.data)

    def finish_snapshot(self, snapshot: SnapshotId) -> None:
        """Fsync the download in its lane; then load it, empty the log and report it to the core."""
        assert self._download is not None, "law: only a fetched snapshot is finished"
        work = self._download.begin_finish()
        self._download = None
        what = f"loading snapshot {tuple(snapshot)} fetched from node {self._driver.leader_id}"
        self._in_background(SNAPSHOT_LANE, what, work, lambda: self._take_over(snapshot))

    def _take_over(self, snapshot: SnapshotId) -> None:
        """Put a fetched snapshot in the log's place, once it has proven complete."""
        driver = self._driver
        self._snapshots.replaced()
        self._history.truncated(0)
        try:
            self._commits.load_snapshot(snapshot)
        except Exception:
            driver.storage.remove_snapshot(snapshot)  # the next start uses the old state and fetches the snapshot again
            raise
        driver.storage.reset_to(snapshot.end_offset)
        driver.step(events.SnapshotStored(snapshot, self._history.voters))

    def remove_snapshots(self, snapshots: Sequence[SnapshotId]) -> None:
        """Set the snapshots aside; the storage deletes their files later."""
        for snapshot in snapshots:
            self._driver.storage.remove_snapshot(snapshot)

    # Vote and epoch; messages.

    def save_state(self, state: QuorumState) -> None:
        """Write the quorum-state file in its lane. Until then `send` must not be called."""
        driver = self._driver
        self._unsaved = state
        work = driver.storage.begin_save_quorum_state(state, self._history.kraft_version, driver.voters.ids)
        self._in_background(STATE_LANE, "saving the quorum-state", work, lambda: self._saved(state))

    def _saved(self, state: QuorumState) -> None:
        if state is self._unsaved:
            self._unsaved = None
        self._driver.step(events.QuorumStateWritten(state))

    def send(self, message: do.Message) -> None:
        """Send now: a request to its peer, an answer to its connection. Answers read log and snapshots here."""
        assert self._unsaved is None, "law: vote and epoch are on disk before messages leave (contract 2)"
        _SEND[type(message)](self, message)

    def _send_request(self, message: do.Send) -> None:
        self._peers.send(message)

    def _respond(self, message: do.Respond) -> None:
        self._answer(message.token, message.reply)

    def _answer(self, ctx: Any, reply: Any) -> None:
        driver = self._driver
        voters = self._peers.with_leader(driver.voters, reply.leader_id)
        if isinstance(reply, VoterChangeReply):
            ctx.respond(wire_form.voter_change_to_wire(ctx.api_key, reply, voters, ctx.listener))
        else:
            ctx.respond(wire_form.reply_to_wire(reply, ctx.api_version, voters, ctx.listener))

    def _read_log(self, message: do.ReadLog) -> None:
        records = self._driver.storage.read(message.offset, message.max_bytes)
        self._answer(message.token, message.reply._replace(records=records))  # type: ignore[call-arg]

    def _read_snapshot(self, message: do.ReadSnapshot) -> None:
        storage = self._driver.storage
        sizes = {found.id: found.size_bytes for found in storage.snapshots()}
        size = sizes.get(message.snapshot, 0)
        if message.position >= size:
            error = POSITION_OUT_OF_RANGE if size else SNAPSHOT_NOT_FOUND
            self._answer(message.token, message.reply._replace(error=error))
            return
        data = storage.read_snapshot(message.snapshot, message.position, message.max_bytes)
        self._answer(message.token, message.reply._replace(size=size, data=data))  # type: ignore[call-arg]

    # Reports of the core.

    def proposed(self, proposed: do.Proposed) -> None:
        """Hand the prepared records to the image's delivery, which then need not read them from disk."""
        driver = self._driver
        prepared = driver.scheduling
        assert prepared is not None, "law: only prepared records are proposed"
        assert proposed == do.Proposed(prepared.first_offset, prepared.last_offset), "law: offsets are as prepared"
        now = driver.env.clock.wall_ms()
        offset = prepared.first_offset
        for records in prepared.batches:
            self._commits.appended(offset, prepared.epoch, now, records)
            offset += len(records)
        self._commit_times.appended(proposed.last_offset, driver.env.clock.monotonic_ms())

    def committed(self, high_watermark: int) -> None:
        """Deliver the commits after this step, and note their latencies."""
        driver = self._driver
        self._commits.note_commit(high_watermark)
        self._commit_times.advanced(high_watermark, driver.env.clock.monotonic_ms())

    def became_leader(self, epoch: int) -> None:
        """Call the hooks of the driver after this step."""
        self._commits.note_leader(epoch)

    def lost_leadership(self, epoch: int) -> None:
        """Call the hooks of the driver after this step; pending records have no latency any more."""
        self._commits.note_lost(epoch)
        self._commit_times.lost()

    def leader_changed(self, changed: do.LeaderChanged) -> None:
        """Call the hooks of the driver after this step."""
        self._commits.note_leader_changed(changed.leader_id, changed.epoch)

    # The timer; the end.

    def set_timer(self, at_ms: int | None) -> None:
        """Set the timer for the next `Tick`; None: none. Replaces the earlier timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_ms is not None:
            env = self._driver.env
            delay = max(0, at_ms - env.clock.monotonic_ms())
            self._timer = env.scheduler.call_later(delay, self._driver.step, events.Tick())

    def shut_down(self) -> None:
        """Close once the lanes have finished their writes."""
        self.set_timer(None)
        what = "the last flush"
        self._in_background(LOG_LANE, what, self._driver.storage.begin_flush(), self._after_state_lane)

    def _after_state_lane(self) -> None:
        self._in_background(STATE_LANE, "closing", _nothing, self._driver.finish_shutdown)


def _facts(voters: VoterSet, kraft_version: int | None) -> list[tuple[ControlType, bytes]]:
    """The control records that state the voters, after kraft.version if it is given."""
    facts = [(ControlType.KRAFT_VOTERS, encode_voters(voters))]
    if kraft_version is not None:
        facts.insert(0, (ControlType.KRAFT_VERSION, encode_kraft_version(kraft_version)))
    return facts


def _nothing() -> None:
    """A barrier in a lane."""


_APPEND: Final[dict[type, Callable[[RaftHost, Any], None]]] = {
    do.AppendLeaderChange: RaftHost._append_leader_change,
    do.Append: RaftHost._append_records,
    do.AppendVoters: RaftHost._append_voters,
    do.AppendFetched: RaftHost._append_fetched,
}
_SEND: Final[dict[type, Callable[[RaftHost, Any], None]]] = {
    do.Send: RaftHost._send_request,
    do.Respond: RaftHost._respond,
    do.ReadLog: RaftHost._read_log,
    do.ReadSnapshot: RaftHost._read_snapshot,
}
