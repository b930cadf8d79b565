"""Runs the raft core on an `Env`: applies commits to the image, writes snapshots; `host` does the work of steps.

There is one per process. The composition root creates it, gives its `handlers` to the controller listener, and connects
the hooks of controller and broker:

- `loader.publishers`: (delta, image) after each run of committed records; the broker follows them;
- `on_commit(last_offset)`: after the publishers; the controller then sends answers that wait for the commit;
- `on_leader(epoch)`, `on_lost_leadership(epoch)`, `on_leader_changed(leader_id, epoch)`: `on_leader` comes only when
  everything committed before is in the image;
- `prepare(epoch, records)`, then `schedule`, for the active controller; `image` for all.

Hooks run between steps of the core, never inside one, in order. An exception in a step, an effect, a hook or a snapshot
ends the node (contract 10 in `raft/__init__.py`): `faults` gets it, and the driver stops.

This module must not make decisions: elections, commits and answers are the core's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kraft_node.base.env import Env
from kraft_node.base.request import RequestContext
from kraft_node.metadata.log_batches import (
    decode_batches,
)
from kraft_node.metadata.own_fields import snapshot_end_of
from kraft_node.metadata.prepared import Prepared, encoded_batches
from kraft_node.metadata.records import decode_record
from kraft_node.raft import describe_quorum, events, wire_form
from kraft_node.raft.config import RaftConfig
from kraft_node.raft.log_view import LogView, SnapshotId
from kraft_node.raft.membership.quorum import ReplicaKey, VoterSet
from kraft_node.raft.membership.voter_changes import why_not_upgrade
from kraft_node.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
)
from kraft_node.raft.node import NotLeader, RaftNode
from kraft_node.raft.ready import carry_out, failed_work
from kraft_node.raft.snapshots import SnapshotPolicy
from kraft_node.raft.storage import MetadataStorage
from kraft_node.server.faults import FaultHandler, raising
from kraft_node.server.quorum.commit_times import CommitTimes
from kraft_node.server.quorum.commits import Commits
from kraft_node.server.quorum.context import DriverContext
from kraft_node.server.quorum.host import RaftHost
from kraft_node.server.quorum.peers import QuorumPeer, RaftPeers
from kraft_node.server.quorum.snapshots import SnapshotKeeper, SnapshotLags
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import METADATA_TOPIC_NAME
from kraft_protocol.wire.api import ApiKey

DIRECTORIES_DESCRIBED_VERSION: Final = 2


def _no_peer(node_id: int) -> QuorumPeer | None:  # noqa: ARG001
    return None


class RaftDriver(DriverContext):
    """The metadata log of one process. Create it, set the hooks, then `start`."""

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
        peers: Callable[[int], QuorumPeer | None] = _no_peer,
        listener: str = "CONTROLLER",
        bootstrap_servers: Sequence[tuple[str, int]] = (),
        guards_empty_disk: bool = True,
        faults: FaultHandler | None = None,
        place: str = f"{METADATA_TOPIC_NAME}-0",
    ) -> None:
        """Create the driver.

        `peers(node_id)` returns the channel to another voter; None without a channel. `listener` is the name of the
        other controllers' listener. `bootstrap_servers` get requests for the leader, too.
        `guards_empty_disk`: a static voter that has never saved a quorum-state may have lost its disk
        (`raft.membership.amnesia`). `faults` gets fatal errors with their `place`.
        """
        super().__init__(
            env, storage, local, voters, cluster_id, config or RaftConfig(), faults or FaultHandler(raising)
        )
        self.metadata_level: Callable[[], int] = lambda: self.image.metadata_level
        """The level at which records are written; the controller sets it to its overlay's level."""
        self._place = place
        self._guards_empty_disk = guards_empty_disk
        self.snapshot_lags = SnapshotLags(self)
        self.peers = RaftPeers(self, self.snapshot_lags, peers, listener, bootstrap_servers)
        if bootstrap_servers:
            self.loader.publishers.append(self.peers.learn_registered)
        self.snapshots = SnapshotKeeper(self, policy or SnapshotPolicy())
        self.commits = Commits(self, self.snapshots)
        self.commit_times = CommitTimes()
        self.host = RaftHost(self, self.peers, self.commits, self.commit_times, self.snapshots)
        self._shutdown_done: Callable[[], None] | None = None

    # For the controller, the broker and the composition root.

    @property
    def next_offset(self) -> int:
        """The offset of the next appended record: the next broker epoch (KIP-631)."""
        return self.node.next_offset

    @property
    def high_watermark(self) -> int:
        """Everything below it is committed; -1 if unknown."""
        return self.node.high_watermark

    @property
    def applied_offset(self) -> int:
        """Everything below it has been applied to the image (or is held in an open metadata transaction)."""
        return self.commits.applied

    def bootstrap_records(self) -> list[Any]:
        """The records that formatting wrote for the first controller; may be empty."""
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
        self.commits.load_latest()
        stated = self.history.voter_sets
        # An upgrade in the log (not in a snapshot yet) may be undone: then the configured voters count again.
        configured = self._voters
        self._voters = configured if self.history.voters is None else self.history.voters
        may_be_taken_back = bool(stated) and stated[0][0] >= self.applied_offset
        snapshots = [found.id for found in storage.snapshots()]
        log = LogView(storage.start_offset, storage.end_offset, storage.epochs(), snapshots)
        self._node = RaftNode(
            local=self.local,
            voters=configured if may_be_taken_back else self._voters,
            log=log,
            state=storage.load_quorum_state(),
            rng=self.env.rng,
            cluster_id=self.cluster_id,
            config=self.config,
            is_amnesiac=self._is_amnesiac(),
            # Also beside known voters: since this node stopped, all of them may have moved.
            bootstrap_ids=self.peers.bootstrap_ids or None,
            voter_sets=stated,
            kraft_version=self.kraft_version,
            own=self.own,
        )
        self.snapshots.start(storage.size_bytes if storage.end_offset > self.applied_offset else 0)
        self.commit_times.start(storage.end_offset)
        self.step(events.Started())

    def _is_amnesiac(self) -> bool:
        """Whether this voter may have lost its disk.

        At kraft.version 1 a new disk has another directory id, which is not a voter: a voter without a quorum-state has
        never voted there.
        """
        voters = self._voters
        is_one_of_several = len(voters) > 1 and voters.has(self.local)
        is_guarded = self._guards_empty_disk and self.kraft_version < 1
        return is_guarded and is_one_of_several and not self.storage.has_quorum_state

    def prepare(self, epoch: int, records: Sequence[Any], *, atomic: bool = True) -> Prepared:
        """The offsets of the records if they are scheduled next. Nothing changes.

        `atomic`: all in one batch, committed or lost together; otherwise as many batches as needed. Raises NotLeader
        unless this node leads `epoch`, and EncodeError for an invalid record. Raises BatchTooLarge if an atomic append
        can never fit or the disk cannot keep up.
        """
        if self.failed:
            raise NotLeader("this node has failed")
        batches, values = encoded_batches(records, self.metadata_level(), atomic=atomic)
        return Prepared(epoch, self.node.prepare(epoch, values), batches, values)

    def schedule(self, prepared: Prepared) -> None:
        """Append the records that were prepared last. They are committed when `on_commit` has passed their last offset.

        Leadership may end in this very step: then the records are lost, and `on_lost_leadership` follows.
        """
        self.scheduling = prepared
        # Nothing is delivered here: the caller would be notified of commits in the middle of its own work.
        self.step(events.Propose(prepared.epoch, prepared.values), deliver=False)
        self.scheduling = None
        self.commits.deliver_soon()

    def upgrade_kraft_version(self, epoch: int, level: int, validate_only: bool) -> None:
        """As the leader of `epoch`, move the static voters into the log (KIP-853), or only check whether that is
        possible.

        Raises KafkaError: INVALID_UPDATE_VERSION until all voters are known to support it, NOT_CONTROLLER.
        """
        if self.node.epoch != epoch or not self.node.is_leader or not self.node.leader.announced:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"This node does not lead epoch {epoch}.")
        reason = why_not_upgrade(self.node, level)
        if reason is not None:
            message = f"Invalid upgrade of kraft.version to {level} because not all of the voters support it: {reason}"
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
        if not validate_only:
            self.step(events.UpgradeVersion(epoch, level), deliver=False)
            self.commits.deliver_soon()

    def resign(self, epoch: int) -> None:
        """The controller cannot continue in the epoch: resign. Harmless if the epoch is over already."""
        if self.node.epoch == epoch and self.node.leader_id == self.local.id:
            self.step(events.Resign(epoch))

    def shutdown(self, done: Callable[[], None]) -> None:
        """Hand over leadership, finish pending writes, then call `done()`."""
        self._shutdown_done = done
        self.snapshots.stop()
        if self.failed:
            self.finish_shutdown()
        else:
            self.step(events.Shutdown())

    def learned(self, node_id: int) -> None:
        """A controller with an unknown id exists: it may know the leader."""
        self.step(events.Learned(node_id), deliver=False)
        self.commits.deliver_soon()

    def disconnected(self, node_id: int) -> None:
        """That node has closed or refused a connection: it may be gone."""
        self.step(events.Disconnected(node_id))

    # Requests of other nodes.

    def handlers(self) -> dict[ApiKey, Callable[[RequestContext, Any], Any]]:
        """The handlers for the controller listener."""
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
            self.snapshot_lags.note(request.replica.id, snapshot_end_of(message))
        elif isinstance(request, BeginQuorumEpochRequest | EndQuorumEpochRequest):
            self.peers.learn_leader(message, request.epoch)
        self.step(events.Requested(ctx, request))
        return None

    def _describe(self, ctx: RequestContext, message: Any) -> Any:
        clock = self.env.clock
        response = describe_quorum.describe_quorum(self.node, message, clock.monotonic_ms(), clock.wall_ms())
        if ctx.api_version < DIRECTORIES_DESCRIBED_VERSION:
            describe_quorum.without_directories(response)
        return response

    # Steps of the core.

    def step(self, event: events.Event, *, deliver: bool = True) -> None:
        """Pass an event to the core, and carry out the resulting work."""
        if self.failed:
            return
        if self.stepping:
            law = "law: all work of a step is carried out before the next (contract 1)"
            self.fail(type(event).__name__, AssertionError(law))
            return
        self.stepping = True
        try:
            carry_out(self.node.step(event, self.env.clock.monotonic_ms()), self.host)
        except Exception as e:
            self.fail(failed_work(e) or type(event).__name__, e)
        finally:
            self.stepping = False
        if deliver:
            self.commits.deliver()

    def fail(self, what: str, error: BaseException) -> None:
        """Contract 10: the state on disk or in memory is unknown from now on."""
        if not self.failed:
            self.failed = True
            self.host.set_timer(None)
            self.faults.fatal(f"{self._place}: {what}", error)

    def finish_shutdown(self) -> None:
        """All writes are finished: close, and notify the waiter."""
        self.failed = True
        done, self._shutdown_done = self._shutdown_done, None
        self.storage.close()
        if done is not None:
            done()
