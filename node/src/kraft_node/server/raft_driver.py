"""Runs the raft core on an `Env`: its effects on disk and wire, commits into the image, snapshots out of it.

One a process. The composition root makes it, gives its `handlers` to the controller listener, and lets the controller
and the broker hook in:

- `loader.publishers`: (delta, image) after each run of committed records, the broker's way to follow;
- `on_commit(last_offset)`: after the publishers, the controller's moment to answer what has become true;
- `on_leader(epoch)`, `on_lost_leadership(epoch)`, `on_leader_changed(leader_id, epoch)`: `on_leader` comes only when
  everything committed before is in the image;
- `prepare(epoch, records)`, then `schedule`, for the active controller; `image` for everybody.

Hooks run between steps of the core, never inside one, in the order in which things happened. Whatever raises in a step,
an effect, a hook or a snapshot ends the node (contract 10 in `raft/__init__.py`): `faults` is told, and nothing is done
any more.

It must not decide anything: elections, commits and answers are the core's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kraft_node.base.env import Env, Timer
from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.base.ids import METADATA_TOPIC_NAME
from kraft_node.base.request import RequestContext
from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.loader import MetadataLoader
from kraft_node.metadata.log_batches import (
    data_batch,
    decode_batches,
    leader_change_batch,
    voters_batch,
)
from kraft_node.metadata.prepared import Prepared, encoded_batches
from kraft_node.metadata.records import decode_record
from kraft_node.metadata.snapshot_state import told_snapshot
from kraft_node.raft import effects as do
from kraft_node.raft import events, wire_form
from kraft_node.raft.config import RaftConfig
from kraft_node.raft.log_view import LogView, SnapshotId
from kraft_node.raft.messages import (
    POSITION_OUT_OF_RANGE,
    SNAPSHOT_NOT_FOUND,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    VoterChangeReply,
)
from kraft_node.raft.node import NotLeader, RaftNode
from kraft_node.raft.quorum import ReplicaKey, Voter, VoterSet
from kraft_node.raft.snapshots import SnapshotPolicy
from kraft_node.raft.storage import MetadataStorage, SnapshotWriter
from kraft_node.raft.voter_changes import why_not_upgrade
from kraft_node.raft.voter_history import VoterHistory, encode_kraft_version, encode_voters
from kraft_node.records.batch import iter_headers
from kraft_node.records.control import ControlType, iter_control_records
from kraft_node.server.commit_times import CommitTimes
from kraft_node.server.faults import Faults, raising
from kraft_node.server.raft_commits import Commits
from kraft_node.server.raft_peers import Peer, RaftPeers
from kraft_node.server.raft_snapshots import SnapshotKeeper, SnapshotLags
from kraft_node.wire.api import ApiKey

DIRECTORIES_DESCRIBED_VERSION: Final = 2
STATED_VERSION: Final = 1
"""The kraft.version of voters that the log states."""
LOG_LANE: Final = "metadata-log"
STATE_LANE: Final = "quorum-state"
SNAPSHOT_LANE: Final = "metadata-snapshot"

Hook = Callable[[int], None]


def _no_peer(node_id: int) -> Peer | None:  # noqa: ARG001
    return None


class RaftDriver:
    """The metadata log of one process, alive. Make it, set the hooks, `start`."""

    def __init__(
        self,
        env: Env,
        storage: MetadataStorage,
        *,
        local: ReplicaKey,
        voters: VoterSet,
        cluster_id: str,
        config: RaftConfig | None = None,
        policy: SnapshotPolicy | None = None,
        peers: Callable[[int], Peer | None] = _no_peer,
        listener: str = "CONTROLLER",
        bootstrap_servers: Sequence[tuple[str, int]] = (),
        guards_empty_disk: bool = True,
        faults: Faults | None = None,
        place: str = f"{METADATA_TOPIC_NAME}-0",
    ) -> None:
        """`peers(node_id)` gives the way to another voter; None when there is none. `listener` is the one of theirs to
        use; `bootstrap_servers` are asked for the leader as long as no voters are known. `guards_empty_disk`: a voter
        of several that has never saved a quorum-state may have lost its disk (`raft.amnesia`). `faults` are told what
        ends the node, and that it was at `place`."""
        self.env = env
        self.storage = storage
        self.local = local
        self._voters = voters
        self.cluster_id = cluster_id
        self.history = VoterHistory()
        """kraft.version and voters as the log states them; `voters` says what counts."""
        self.loader = MetadataLoader()
        self.metadata_level: Callable[[], int] = lambda: self.image.metadata_level
        """The level that records are written at; the controller sets it to that of its overlay."""
        self.on_commit: list[Hook] = []
        self.on_leader: list[Hook] = []
        self.on_lost_leadership: list[Hook] = []
        self.on_leader_changed: list[Callable[[int, int], None]] = []
        self.faults = faults or Faults(raising)
        self.failed = False
        """Nothing is done any more: the node ends."""
        self._place = place
        self.config = config or RaftConfig()
        self.own: Voter | None = None
        """What this node would be as a voter; set before the start for whoever may become one (KIP-853)."""
        self.snapshot_lags = SnapshotLags(self)
        self._guards_empty_disk = guards_empty_disk
        self.peers = RaftPeers(self, peers, listener, bootstrap_servers)
        if bootstrap_servers:
            self.loader.publishers.append(self.peers.learn_registered)
        self._node: RaftNode | None = None
        self._timer: Timer | None = None
        self.stepping = False
        """Whether effects of a step are being carried out."""
        self._scheduling: Prepared | None = None
        self._commits = Commits(self)
        self.commit_times = CommitTimes()
        self._download: SnapshotWriter | None = None
        self.snapshots = SnapshotKeeper(self, policy or SnapshotPolicy())
        self._shutdown_done: Callable[[], None] | None = None

    # For controller, broker and the composition root.

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self.loader.image

    @property
    def node(self) -> RaftNode:
        """The core, for questions only."""
        assert self._node is not None, "law: started first"
        return self._node

    @property
    def started(self) -> bool:
        """Whether there is a core to ask."""
        return self._node is not None

    @property
    def voters(self) -> VoterSet:
        """The voters that count now."""
        return self._voters if self._node is None else self._node.voters

    @property
    def has_stated_voters(self) -> bool:
        """Whether the log states the voters, rather than the configuration."""
        return self.node.voter_sets.kraft_version >= 1

    @property
    def leader_id(self) -> int:
        """The leader as far as known, -1 for nobody."""
        return self.node.leader_id

    @property
    def epoch(self) -> int:
        return self.node.epoch

    @property
    def next_offset(self) -> int:
        """The offset that the next appended record gets: the next broker epoch (KIP-631)."""
        return self.node.next_offset

    @property
    def high_watermark(self) -> int:
        """Everything below it is committed; -1 when not known yet."""
        return self.node.high_watermark

    @property
    def applied_offset(self) -> int:
        """Everything below it has been applied to the image (or is held in an open metadata transaction)."""
        return self._commits.applied

    def bootstrap_records(self) -> list[Any]:
        """The records that formatting left for the first controller; empty when there are none."""
        values = self.storage.bootstrap_records()
        if values:
            return [decode_record(value) for value in values]
        bootstrap = SnapshotId(0, 0)
        if all(found.id != bootstrap for found in self.storage.snapshots()):
            return []
        batches = (batch for data in self.storage.snapshot_batches(bootstrap) for batch in decode_batches(data))
        return [record for batch in batches for _, record in batch.records]

    @property
    def kraft_version(self) -> int:
        """The finalized kraft.version: 0 static voters, 1 voters in the log (KIP-853)."""
        return self.history.kraft_version

    def start(self) -> None:
        """Load the latest snapshot, then run, calling the hooks. Raises OSError, ValueError, MetadataError."""
        storage = self.storage
        self._commits.load_latest()
        stated = self.history.voter_sets
        # An upgrade in the log (not yet in a snapshot) may be taken back: then the configured voters count again.
        first = self._voters if stated and stated[0][0] >= self.applied_offset else None
        self._voters = self.history.voters or self._voters
        snapshots = [found.id for found in storage.snapshots()]
        log = LogView(storage.start_offset, storage.end_offset, storage.epochs(), snapshots)
        self._node = RaftNode(
            local=self.local,
            voters=first or self._voters,
            log=log,
            state=storage.load_quorum_state(),
            rng=self.env.rng,
            cluster_id=self.cluster_id,
            config=self.config,
            is_amnesiac=self._is_amnesiac(),
            bootstrap_ids=None if len(self._voters) else self.peers.bootstrap_ids,
            voter_sets=stated,
            kraft_version=self.kraft_version,
            own=self.own,
        )
        self.snapshots.start(storage.size_bytes if storage.end_offset > self.applied_offset else 0)
        self.commit_times.start(storage.end_offset)
        self.step(events.Started())

    def _is_amnesiac(self) -> bool:
        voters = self._voters
        is_one_of_several = len(voters) > 1 and voters.has(self.local)
        return self._guards_empty_disk and is_one_of_several and not self.storage.has_quorum_state

    def prepare(self, epoch: int, records: Sequence[Any], *, atomic: bool = True) -> Prepared:
        """The offsets that the records get if they are scheduled next. Nothing changes.

        `atomic`: all in one batch, committed or lost together; otherwise as many batches as needed.
        Raises NotLeader unless this node leads `epoch`, EncodeError for a record that is none, and BatchTooLarge when
        an atomic append can never fit or the disk does not keep up.
        """
        if self.failed:
            raise NotLeader("this node has failed")
        batches, values = encoded_batches(records, self.metadata_level(), atomic=atomic)
        return Prepared(epoch, self.node.prepare(epoch, values), batches, values)

    def schedule(self, prepared: Prepared) -> None:
        """Hand to the log what was prepared last. Committed when `on_commit` has passed its last offset.

        Leadership may end in this very step: then the records are gone, and `on_lost_leadership` follows.
        """
        self._scheduling = prepared
        # Nothing is delivered from inside: the caller would be told of commits in the middle of its own work.
        self.step(events.Propose(prepared.epoch, prepared.values), deliver=False)
        self._scheduling = None
        self._commits.deliver_soon()

    def upgrade_kraft_version(self, epoch: int, level: int, validate_only: bool) -> None:
        """As the leader of `epoch`, make the static voters those of the log (KIP-853), or only see whether that could
        be done.

        Raises KafkaError: INVALID_UPDATE_VERSION while not all voters are known to support it, NOT_CONTROLLER.
        """
        if self.node.epoch != epoch or not self.node.is_leader or not self.node.leader.announced:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"This node does not lead epoch {epoch}.")
        reason = why_not_upgrade(self.node, level)
        if reason is not None:
            message = f"Invalid upgrade of kraft.version to {level} because not all of the voters support it: {reason}"
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
        if not validate_only:
            self.step(events.UpgradeVersion(epoch, level), deliver=False)
            self._commits.deliver_soon()

    def resign(self, epoch: int) -> None:
        """The controller cannot go on in that epoch: let another one lead. Harmless when it is over already."""
        if self.node.epoch == epoch and self.node.leader_id == self.local.id:
            self.step(events.Resign(epoch))

    def shutdown(self, done: Callable[[], None]) -> None:
        """Hand over leadership, finish what is being written, then `done()`."""
        self._shutdown_done = done
        self.snapshots.stop()
        if self.failed:
            self._finish_shutdown()
        else:
            self.step(events.Shutdown())

    def learned(self, node_id: int) -> None:
        """A controller exists whose id was not known: it can be asked for the leader."""
        self.step(events.Learned(node_id), deliver=False)
        self._commits.deliver_soon()

    def disconnected(self, node_id: int) -> None:
        """That node has closed its connection, or refuses one: it may be gone."""
        self.step(events.Disconnected(node_id))

    # Requests of other nodes.

    def handlers(self) -> dict[ApiKey, Callable[[RequestContext, Any], Any]]:
        """What the controller listener answers from here."""
        return {
            ApiKey.VOTE: self._handle,
            ApiKey.BEGIN_QUORUM_EPOCH: self._handle,
            ApiKey.END_QUORUM_EPOCH: self._handle,
            ApiKey.FETCH: self._handle,
            ApiKey.FETCH_SNAPSHOT: self._handle,
            ApiKey.ADD_RAFT_VOTER: self._handle,
            ApiKey.REMOVE_RAFT_VOTER: self._handle,
            ApiKey.UPDATE_RAFT_VOTER: self._handle,
            ApiKey.DESCRIBE_QUORUM: self._describe,
        }

    def _handle(self, ctx: RequestContext, message: Any) -> Any:
        try:
            request = wire_form.request_from_wire(message)
        except wire_form.NotAboutMetadata:
            return wire_form.not_about_metadata(message)
        if isinstance(request, FetchRequest):
            self.snapshot_lags.note(request.replica.id, told_snapshot(message))
        elif isinstance(request, BeginQuorumEpochRequest | EndQuorumEpochRequest):
            self.peers.learn_leader(message, request.epoch)
        self.step(events.Asked(ctx, request))
        return None

    def _describe(self, ctx: RequestContext, message: Any) -> Any:
        clock = self.env.clock
        response = wire_form.describe_quorum(self.node, message, clock.monotonic_ms(), clock.wall_ms())
        if ctx.api_version < DIRECTORIES_DESCRIBED_VERSION:
            wire_form.without_directories(response)
        return response

    # Steps of the core.

    def step(self, event: events.Event, *, deliver: bool = True) -> None:
        """Let the core know; carry out what it wants."""
        if self.failed:
            return
        if self.stepping:
            law = "law: all effects of a step are carried out before the next (contract 1)"
            self.fail(type(event).__name__, AssertionError(law))
            return
        self.stepping = True
        doing: type = type(event)
        try:
            for effect in self.node.step(event, self.env.clock.monotonic_ms()):
                doing = type(effect)
                _DO[doing](self, effect)
        except Exception as e:
            self.fail(doing.__name__, e)
        finally:
            self.stepping = False
        if deliver:
            self._commits.deliver()

    def fail(self, what: str, error: BaseException) -> None:
        """Contract 10: what is on disk or in memory is unknown from now on."""
        if not self.failed:
            self.failed = True
            if self._timer is not None:
                self._timer.cancel()
            self.faults.fatal(f"{self._place}: {what}", error)

    def guarded(self, what: str, work: Callable[[], None]) -> None:
        """Do what is no step, within the same boundary."""
        if self.failed:
            return
        try:
            work()
        except Exception as e:
            self.fail(what, e)

    def _in_background(self, lane: str, what: str, job: Callable[[], object], then: Callable[[], None]) -> None:
        """Have `job` done in that lane, `then` the rest on the loop, unless the job failed."""

        def done(result: Any) -> None:
            if isinstance(result, BaseException):
                self.fail(what, result)
            else:
                self.guarded(what, then)

        self.env.background.submit(lane, job, done)

    def _write_quorum_state(self, effect: do.WriteQuorumState) -> None:
        work = self.storage.begin_save_quorum_state(effect.state, self.kraft_version, self.voters.ids)
        written = events.QuorumStateWritten(effect.state)
        self._in_background(STATE_LANE, "saving the quorum-state", work, lambda: self.step(written))

    def _append_leader_change(self, effect: do.AppendLeaderChange) -> None:
        now = self.env.clock.wall_ms()
        facts = [] if effect.stated is None else _facts(effect.stated, STATED_VERSION)
        batch = leader_change_batch(
            effect.offset, effect.epoch, self.local.id, effect.voters, effect.granting, now, facts
        )
        self._write(effect.offset, [batch])
        for offset, (kind, value) in enumerate(facts, effect.offset + 1):
            self.history.take(offset, kind, value)

    def _append_voters(self, effect: do.AppendVoters) -> None:
        facts = _facts(effect.voters, effect.kraft_version)
        self._write(effect.offset, [voters_batch(effect.offset, effect.epoch, facts, self.env.clock.wall_ms())])
        for offset, (kind, value) in enumerate(facts, effect.offset):
            self.history.take(offset, kind, value)

    def _append(self, effect: do.Append) -> None:
        now = self.env.clock.wall_ms()
        self._write(effect.offset, [data_batch(effect.records, effect.offset, effect.epoch, now)])

    def _append_fetched(self, effect: do.AppendFetched) -> None:
        self._write(effect.offset, [effect.records])
        for header in iter_headers(effect.records):
            if header.is_control:
                for control in iter_control_records(effect.records, header):
                    self.history.take(control.offset, control.type, control.value)

    def _write(self, offset: int, batches: Sequence[Any]) -> None:
        assert offset == self.storage.end_offset, f"law: core and storage agree on the log's end ({offset})"
        self.storage.append(batches)
        self.snapshots.new_bytes += sum(len(batch) for batch in batches)

    def _truncate(self, effect: do.Truncate) -> None:
        committed = self._commits.committed
        law = f"law: nothing committed is truncated (contract 7): to offset {effect.offset}, below {committed}"
        assert effect.offset >= committed, law
        self.storage.truncate(effect.offset)
        self.history.truncated(effect.offset)

    def _flush(self, effect: do.Flush) -> None:
        flushed = events.Flushed(effect.offset)
        self._in_background(LOG_LANE, "flushing the log", self.storage.begin_flush(), lambda: self.step(flushed))

    def _send(self, effect: do.Send) -> None:
        assert self.node.is_quorum_state_durable, "law: vote and epoch are on disk before words leave (contract 2)"
        self.peers.send(effect)

    def _respond(self, effect: do.Respond) -> None:
        self._answer(effect.token, effect.reply)

    def _answer(self, ctx: Any, reply: Any) -> None:
        voters = self.peers.with_leader(self.voters, reply.leader_id)
        if isinstance(reply, VoterChangeReply):
            ctx.respond(wire_form.voter_change_to_wire(ctx.api_key, reply, voters, ctx.listener))
        else:
            ctx.respond(wire_form.reply_to_wire(reply, ctx.api_version, voters, ctx.listener))

    def _read_log(self, effect: do.ReadLog) -> None:
        records = self.storage.read(effect.offset, effect.max_bytes)
        self._answer(effect.token, effect.reply._replace(records=records))  # type: ignore[call-arg]

    def _read_snapshot(self, effect: do.ReadSnapshot) -> None:
        sizes = {found.id: found.size_bytes for found in self.storage.snapshots()}
        size = sizes.get(effect.snapshot, 0)
        if effect.position >= size:
            error = POSITION_OUT_OF_RANGE if size else SNAPSHOT_NOT_FOUND
            self._answer(effect.token, effect.reply._replace(error=error))
            return
        data = self.storage.read_snapshot(effect.snapshot, effect.position, effect.max_bytes)
        self._answer(effect.token, effect.reply._replace(size=size, data=data))  # type: ignore[call-arg]

    def _write_snapshot_part(self, effect: do.WriteSnapshotPart) -> None:
        if effect.position == 0:
            if self._download is not None:
                self._download.abandon()
            self._download = self.storage.create_snapshot(effect.snapshot)
        assert self._download is not None, "law: a snapshot is fetched from its beginning"
        self._download.append(effect.data)

    def _finish_snapshot(self, effect: do.FinishSnapshot) -> None:
        assert self._download is not None, "law: only what was fetched is finished"
        work = self._download.begin_finish()
        self._download = None
        snapshot = effect.snapshot
        what = f"loading snapshot {tuple(snapshot)} fetched from node {self.leader_id}"
        self._in_background(SNAPSHOT_LANE, what, work, lambda: self._take_over(snapshot))

    def _take_over(self, snapshot: SnapshotId) -> None:
        """A fetched snapshot takes the log's place, once it has proven to be whole."""
        self.snapshots.replaced()
        self.history.truncated(0)
        try:
            self._commits.load_snapshot(snapshot)
        except Exception:
            self.storage.remove_snapshot(snapshot)  # the next start begins with what there was, and fetches it anew
            raise
        self.storage.reset_to(snapshot.end_offset)
        self.step(events.SnapshotStored(snapshot, self.history.voters))

    def _remove_snapshots(self, effect: do.RemoveSnapshots) -> None:
        for snapshot in effect.snapshots:
            self.storage.remove_snapshot(snapshot)

    def _answer_proposal(self, effect: do.Proposed) -> None:
        prepared = self._scheduling
        assert prepared is not None, "law: only what was prepared is proposed"
        assert effect == do.Proposed(prepared.first_offset, prepared.last_offset), "law: offsets are as prepared"
        now = self.env.clock.wall_ms()
        offset = prepared.first_offset
        for records in prepared.batches:
            self._commits.appended(offset, prepared.epoch, now, records)
            offset += len(records)
        self.commit_times.appended(effect.last_offset, self.env.clock.monotonic_ms())

    def _note_commit(self, effect: do.Committed) -> None:
        self._commits.note_commit(effect.high_watermark)
        self.commit_times.advanced(effect.high_watermark, self.env.clock.monotonic_ms())

    def _note_leader(self, effect: do.BecameLeader) -> None:
        self._commits.note_leader(effect.epoch)

    def _note_lost(self, effect: do.LostLeadership) -> None:
        self._commits.note_lost(effect.epoch)
        self.commit_times.lost()

    def _note_leader_changed(self, effect: do.LeaderChanged) -> None:
        self._commits.note_leader_changed(effect.leader_id, effect.epoch)

    def _set_timer(self, effect: do.SetTimer) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if effect.at_ms is not None:
            delay = max(0, effect.at_ms - self.env.clock.monotonic_ms())
            self._timer = self.env.scheduler.call_later(delay, self.step, events.Tick())

    def _note_shutdown(self, effect: do.ShutdownComplete) -> None:  # noqa: ARG002
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # After what the lanes still have to write.
        what = "the last flush"
        self._in_background(LOG_LANE, what, self.storage.begin_flush(), self._after_state_lane)

    def _after_state_lane(self) -> None:
        self._in_background(STATE_LANE, "closing", _nothing, self._finish_shutdown)

    def _finish_shutdown(self) -> None:
        self.failed = True
        done, self._shutdown_done = self._shutdown_done, None
        self.storage.close()
        if done is not None:
            done()


def _facts(voters: VoterSet, kraft_version: int | None) -> list[tuple[ControlType, bytes]]:
    """The control records that state the voters, behind kraft.version where it is given."""
    facts = [(ControlType.KRAFT_VOTERS, encode_voters(voters))]
    if kraft_version is not None:
        facts.insert(0, (ControlType.KRAFT_VERSION, encode_kraft_version(kraft_version)))
    return facts


def _nothing() -> None:
    """A barrier in a lane."""


_DO: Final[dict[type, Callable[[RaftDriver, Any], None]]] = {
    do.WriteQuorumState: RaftDriver._write_quorum_state,
    do.AppendLeaderChange: RaftDriver._append_leader_change,
    do.Append: RaftDriver._append,
    do.AppendVoters: RaftDriver._append_voters,
    do.AppendFetched: RaftDriver._append_fetched,
    do.Truncate: RaftDriver._truncate,
    do.Flush: RaftDriver._flush,
    do.Send: RaftDriver._send,
    do.Respond: RaftDriver._respond,
    do.ReadLog: RaftDriver._read_log,
    do.ReadSnapshot: RaftDriver._read_snapshot,
    do.WriteSnapshotPart: RaftDriver._write_snapshot_part,
    do.FinishSnapshot: RaftDriver._finish_snapshot,
    do.RemoveSnapshots: RaftDriver._remove_snapshots,
    do.Proposed: RaftDriver._answer_proposal,
    do.Committed: RaftDriver._note_commit,
    do.BecameLeader: RaftDriver._note_leader,
    do.LostLeadership: RaftDriver._note_lost,
    do.LeaderChanged: RaftDriver._note_leader_changed,
    do.SetTimer: RaftDriver._set_timer,
    do.ShutdownComplete: RaftDriver._note_shutdown,
}
