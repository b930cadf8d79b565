"""Drives a migration from the active controller: gates, claim, reading into one transaction, writes to both worlds.

The life of an active controller is one generator, `_life`. It yields what it waits for: a job in ZooKeeper's lane, a
commit, a change of the image, a pause. Losing the leadership closes the generator; a job that still runs in the lane
then fails at its next write, because the next controller's claim has raised the epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final

from kraft_node.base.env import Env
from kraft_node.base.histogram import Histogram
from kraft_node.metadata.delta import MetadataDelta
from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.kinds.zk_migration import MIGRATION, PRE_MIGRATION
from kraft_node.migration.claim import ClaimError, ControllerClaim, claim, claimed_again, is_interrupted, undo
from kraft_node.migration.entities import Entities, ImageReader, changed, of_image
from kraft_node.migration.gates import broker_blockers, controller_blockers, look, read_live, strangers
from kraft_node.migration.lane import LANE, LaneSession
from kraft_node.migration.links import BrokerLink, MigrationLog, RecordsRefusedError
from kraft_node.migration.passwords import PasswordEncoder
from kraft_node.migration.reading import ContentMarks, MetadataReader
from kraft_node.migration.states import DriverState
from kraft_node.migration.tree.values import MigrationValue, ZnodeError
from kraft_node.migration.waits import Announcement, DriverLife, DriverPause, ImageChange, LaneJob, LogAppend
from kraft_node.migration.writing import ZnodeWriter
from kraft_node.migration.zookeeper import Connect, NoAnswerError, TransactionError, ZooKeeper
from kraft_protocol.wire.stored import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    ZkMigrationStateRecord,
)

log = logging.getLogger(__name__)

PAUSE_FIRST_MS: Final = 100
PAUSE_MAX_MS: Final = 60_000
ENTITIES_AT_ONCE: Final = 200
LAG_RECORDS_MAX: Final = 10_000
"""The limit in KIP-866's draft: if ZooKeeper is further behind, the metadata log has to wait."""
REQUESTS_MS: Final = 1_000
"""How long brokers may still write to ZooKeeper for requests that came before they knew of a KRaft controller."""
LOOK_MS: Final = 10_000
"""How often ZooKeeper's list of brokers is compared with the registrations."""
TRANSACTION_NAME: Final = "ZK Migration"
CALL_ERRORS: Final = (NoAnswerError, TransactionError, ClaimError, ZnodeError, RecordsRefusedError)


class MigrationDriver:
    """One per controller. `led` and `lost` follow the leadership, `moved` the committed metadata."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        cluster_id: str,
        image: MetadataImage,
        metadata_log: MigrationLog,
        brokers: BrokerLink,
        connect: Connect,
        voters: Callable[[], Collection[int]],
        secret: str | None,
        ready: Callable[[], Mapping[int, bool]] = dict,
    ) -> None:
        """`ready` asks the voters whether they migrate, for the next call, and returns their last answers."""
        self._env = env
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._image = image
        self._log = metadata_log
        self._brokers = brokers
        self._lane = LaneSession(env, connect)
        self._voters = voters
        self._ready = ready
        self._passwords = PasswordEncoder(secret, env.rng)
        self.state = DriverState.UNINITIALIZED
        self.blockers: list[str] = []
        """Why the migration does not go on; empty if it does."""
        self.read_records = 0
        """How many records of ZooKeeper are in the transaction."""
        self.written_offset = -1
        """ZooKeeper has every change up to this offset."""
        self.incompatible: list[str] = []
        """Brokers that came to ZooKeeper after the start of the migration and cannot take part, with reasons."""
        self.delta_ms = Histogram()
        """Durations of writes of changes to ZooKeeper."""
        self.snapshot_ms = Histogram()
        """Durations of writes of the whole image to ZooKeeper."""
        self._blocked_since_ms: int | None = None
        self._strangers: dict[int, str] = {}
        self._looked_ms = 0
        self._kraft_epoch = -1
        self._life_now: DriverLife | None = None
        self._turn = 0
        self._proved: ZooKeeper | None = None
        """The session in which the claim was read or made: it sees no state of ZooKeeper from before."""
        self._claim: ControllerClaim | None = None
        self._dirty = Entities()
        self._waits_for_change = False
        self._nodes_changed = False
        """Brokers or controllers have changed since a gate has looked at them."""
        self._pause_ms = PAUSE_FIRST_MS
        self._finished: Callable[[], None] | None = None
        """Called once ZooKeeper has every change."""
        self._ends = False
        """This node stops."""
        self._failures = 0
        """Migrations that this active controller had to abort."""

    # Events

    def led(self, epoch: int) -> None:
        """This node is the active controller of this epoch, and its image has all earlier epochs' records."""
        self.lost()
        self._kraft_epoch = epoch
        self._life_now = self._life()
        self._resume(None)

    def lost(self) -> None:
        """This node is not the active controller any more, or stops."""
        life, self._life_now = self._life_now, None
        self._turn += 1
        self._waits_for_change = False
        if life is not None:
            life.close()
            self._brokers.end()
            self._lane.drop()
        self._claim = None
        self._dirty = Entities()
        self._enter(DriverState.INACTIVE)
        self.blockers = []
        self.incompatible = []
        self._strangers = {}
        self._blocked_since_ms = None
        self._failures = 0
        self._note_finished()

    def finish(self, done: Callable[[], None]) -> None:
        """Call `done` once ZooKeeper has every change, at once if nothing is written. Administrative changes wait."""
        self._finished, self._ends = done, True
        if self._life_now is None or self._image.zk_migration_state != MIGRATION:
            self._note_finished()
        elif self._waits_for_change:
            self._waits_for_change = False
            self._resume(None)  # it may be all written already

    def _note_finished(self) -> None:
        done, self._finished = self._finished, None
        if done is not None:
            self._env.scheduler.call_soon(done)

    def moved(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Committed metadata has changed."""
        if self._life_now is None:
            return
        self._nodes_changed |= delta.is_snapshot or bool(delta.brokers or delta.controllers)
        self._dirty.update(of_image(image) if delta.is_snapshot else changed(delta, image))
        self._note_blocking()
        if self._waits_for_change:
            self._waits_for_change = False
            self._resume(None)

    # Figures

    @property
    def lag(self) -> int:
        """How many records ZooKeeper may be behind; 0 unless this is the active controller of a migration.

        Until a new controller has claimed ZooKeeper, and so has read what its predecessors have written, all count.
        """
        is_dual = self._life_now is not None and self._image.zk_migration_state == MIGRATION
        return max(0, self._image.offset - self.written_offset) if is_dual else 0

    @property
    def blocks_writes(self) -> bool:
        """Whether the controller must not append administrative changes now."""
        return self._ends or self._image.zk_migration_state == PRE_MIGRATION or self.lag > LAG_RECORDS_MAX

    @property
    def blocking_ms(self) -> int:
        """Since when changes wait for ZooKeeper, in milliseconds; 0: they do not wait."""
        since_ms = self._blocked_since_ms
        return 0 if since_ms is None else max(1, self._env.clock.monotonic_ms() - since_ms)

    def _note_blocking(self) -> None:
        if self.lag <= LAG_RECORDS_MAX:
            self._blocked_since_ms = None
        elif self._blocked_since_ms is None:
            self._blocked_since_ms = self._env.clock.monotonic_ms()

    # The generator's machinery

    def _resume(self, result: Any) -> None:
        life = self._life_now
        assert life is not None, "law: only a living driver goes on"
        try:
            wait = life.throw(result) if isinstance(result, BaseException) else life.send(result)
        except StopIteration:
            return
        self._turn += 1
        going_on = partial(self._go_on, self._turn)
        if isinstance(wait, LaneJob):
            self._env.background.submit(LANE, wait.work, going_on)
        elif isinstance(wait, LogAppend):
            try:
                self._log.append(wait.records, lambda: going_on(None))
            except RecordsRefusedError as e:
                self._env.scheduler.call_soon(going_on, e)
        elif isinstance(wait, DriverPause):
            self._env.scheduler.call_later(wait.delay_ms, going_on, None)
        elif isinstance(wait, Announcement):
            self._brokers.announce(wait.held, going_on)
        else:
            self._waits_for_change = True
            self._env.scheduler.call_later(wait.within_ms, going_on, None)

    def _go_on(self, turn: int, result: Any) -> None:
        """Resume the driver once, unless it has gone on without."""
        if turn == self._turn and self._life_now is not None:
            self._waits_for_change = False
            self._resume(result)

    def _enter(self, state: DriverState) -> None:
        if state is not self.state:
            log.info("migration state from=%s to=%s", self.state.name, state.name)
            self.state = state
            self._pause_ms = PAUSE_FIRST_MS

    def _pause(self) -> DriverPause:
        pause = DriverPause(self._pause_ms)
        self._pause_ms = min(2 * self._pause_ms, PAUSE_MAX_MS)
        return pause

    # The life of an active controller

    def _life(self) -> DriverLife:
        state = self._image.zk_migration_state
        if state not in {PRE_MIGRATION, MIGRATION}:
            return
        if state == PRE_MIGRATION:  # later, a controller that is down or has no key must not hold up its brokers
            yield from self._gate(DriverState.WAIT_FOR_CONTROLLER_QUORUM, self._controllers_ready)
        while self._image.zk_migration_state == PRE_MIGRATION:
            yield from self._gate(DriverState.WAIT_FOR_BROKERS, self._brokers_ready)
            yield from self._become_controller()
            yield from self._migrate()
        while self._image.zk_migration_state == MIGRATION:
            if self._claim is None:
                yield from self._become_controller()
            try:
                yield from self._write_both()
            except (TransactionError, ClaimError) as e:
                log.warning("another controller has written to ZooKeeper error=%s", e)
                self._brokers.end()
                self._claim = None
        self._brokers.end()
        self._lane.drop()
        self._enter(DriverState.INACTIVE)

    def _gate(self, state: DriverState, look_at: Callable[[], DriverLife]) -> DriverLife:
        """Wait until nothing blocks."""
        self._enter(state)
        while True:
            self._nodes_changed = False
            try:
                blockers = yield from look_at()
            except CALL_ERRORS as e:
                blockers = [str(e)]
            if blockers != self.blockers:
                for blocker in blockers:
                    log.info("migration waits reason=%s", blocker)
            self.blockers = blockers
            if not blockers:
                return
            yield from self._give_back()
            yield from self._until_nodes_change(self._pause().delay_ms)

    def _until_nodes_change(self, within_ms: int) -> DriverLife:
        """Wait until brokers or controllers change, or this time passes."""
        until_ms = self._env.clock.monotonic_ms() + within_ms
        while not self._nodes_changed and (left_ms := until_ms - self._env.clock.monotonic_ms()) > 0:
            yield ImageChange(left_ms)

    def _give_back(self) -> DriverLife:
        """Undo the claim of a predecessor that ended while it read: ZooKeeper's brokers need a controller meanwhile."""
        ours = partial(is_interrupted, voters=frozenset(self._voters()), kraft_epoch=self._kraft_epoch)
        try:
            if (yield from self._lane.result(ours)):
                self._claim = yield from self._lane.result(self._claiming())
        except CALL_ERRORS as e:
            log.warning("whether ZooKeeper must be given back is unknown error=%s", e)
        yield from self._undo()

    def _controllers_ready(self) -> DriverLife:
        yield from ()
        return [*controller_blockers(self._image, self._voters(), self._node_id, self._ready)]

    def _brokers_ready(self) -> DriverLife:
        view = yield from self._lane.result(look)
        blockers = [*broker_blockers(self._image, view, self._cluster_id)]
        if self._failures and not blockers:
            yield from self._lane.result(self._require_readable)
        return blockers

    def _require_readable(self, zookeeper: ZooKeeper) -> None:
        """Raise ZnodeError if the migration would fail again: each attempt costs the brokers their controller."""
        for _ in MetadataReader(zookeeper, self._passwords, self._env.rng).batches():
            pass

    def _become_controller(self) -> DriverLife:
        self._enter(DriverState.BECOME_CONTROLLER)
        while True:
            try:
                self._claim = yield from self._lane.result(self._claiming())
            except CALL_ERRORS as e:
                self.blockers = [str(e)]
                log.warning("ZooKeeper is not claimed error=%s", e)
                yield self._pause()
            else:
                self._proved = self._lane.session
                self.written_offset = self._claim.value.offset  # of its predecessors
                self.blockers = []
                return

    def _claiming(self) -> Callable[[ZooKeeper], ControllerClaim]:
        now_ms, is_migrated = self._env.clock.wall_ms(), self._image.zk_migration_state == MIGRATION
        return lambda zookeeper: claim(zookeeper, self._node_id, self._kraft_epoch, now_ms, is_migrated=is_migrated)

    def _migrate(self) -> DriverLife:
        """Read ZooKeeper into one transaction of the metadata log; what fails is aborted and undone."""
        self._enter(DriverState.ZK_MIGRATION)
        self.read_records = 0
        batches: Iterator[list[Any]] | None = None
        is_open = False
        try:
            marks = yield from self._take_over()
            yield from self._append(BeginTransactionRecord(TRANSACTION_NAME))
            is_open = True
            while True:

                def read(zookeeper: ZooKeeper) -> list[Any] | None:
                    nonlocal batches
                    if batches is None:
                        batches = MetadataReader(zookeeper, self._passwords, self._env.rng).batches()
                    return next(batches, None)

                records = yield from self._lane.result(read)
                if records is None:
                    break
                yield LogAppend(records)
                self.read_records += len(records)
            yield from self._lane.result(marks.require_unchanged)
            yield LogAppend([ZkMigrationStateRecord(MIGRATION), EndTransactionRecord()])
        except CALL_ERRORS as e:
            log.error("the migration is aborted error=%s", e)
            if is_open:
                yield from self._append(AbortTransactionRecord(str(e)))
            self.blockers = [str(e)]
            yield from self._undo()
            self._failures += 1
            yield DriverPause(min(PAUSE_FIRST_MS << min(self._failures, 10), PAUSE_MAX_MS))
            return
        log.info("metadata is migrated records=%d", self.read_records)

    def _take_over(self) -> DriverLife:
        """Make the brokers send administrative requests here before ZooKeeper is read. Returns marks of its content.

        Brokers of 3.9.2 send ACLs to ZooKeeper's former controller until they know of a KRaft controller, and it writes
        them to ZooKeeper. Those that come after the read would be lost. Raises ClaimError if a broker does not answer.
        """
        assert self._claim is not None, "law: only the holder of a claim reads"
        failures = yield Announcement(self._claim)
        if failures:
            raise ClaimError(f"brokers do not learn who the controller is: {'; '.join(failures)}")
        yield DriverPause(REQUESTS_MS)
        return (yield from self._lane.result(ContentMarks))

    def _append(self, record: Any) -> DriverLife:
        """Append a record without which nothing can go on, again and again until the log takes it."""
        while True:
            try:
                yield LogAppend([record])
            except RecordsRefusedError as e:
                self.blockers = [str(e)]
                log.warning("a record of the migration is appended again error=%s", e)
                yield self._pause()
            else:
                self.blockers = []
                return

    def _undo(self) -> DriverLife:
        """Give ZooKeeper back to its brokers."""
        held, self._claim = self._claim, None
        while held is not None:
            try:
                held = yield from self._lane.result(partial(claimed_again, former=held))
                if held is not None:
                    yield from self._lane.result(partial(undo, held=held))
                return
            except TransactionError:
                return  # another controller has claimed it
            except CALL_ERRORS as e:
                log.warning("the claim is not undone yet error=%s", e)
                yield self._pause()

    def _write_both(self) -> DriverLife:
        """Bring ZooKeeper up to the image, then follow it. Raises TransactionError if the claim is over."""
        self._enter(DriverState.SYNC_KRAFT_TO_ZK)
        reached, self._dirty = self._position(), Entities()
        entities = of_image(self._image)
        entities.update((yield from self._patiently(lambda writer: writer.existing())))
        yield from self._timed(self.snapshot_ms, self._write(entities, reached))
        assert self._claim is not None, "law: only the holder of a claim writes"
        self._enter(DriverState.KRAFT_CONTROLLER_TO_BROKER_COMM)
        self._brokers.begin(self._claim)
        self._enter(DriverState.DUAL_WRITE)
        while self._image.zk_migration_state == MIGRATION:
            reached, entities = self._position(), self._dirty
            self._dirty = Entities()
            if entities:
                yield from self._timed(self.delta_ms, self._write(entities, reached))
            else:
                self.written_offset = reached.offset
                self._note_blocking()
                self._note_finished()
                yield from self._look_for_strangers()
                if not self._dirty:
                    yield ImageChange(LOOK_MS)

    def _timed(self, histogram: Histogram, work: DriverLife) -> DriverLife:
        begun_ms = self._env.clock.monotonic_ms()
        yield from work
        histogram.observe(self._env.clock.monotonic_ms() - begun_ms)

    def _look_for_strangers(self) -> DriverLife:
        """List brokers that use ZooKeeper and are not registered here: they get no requests."""
        now_ms = self._env.clock.monotonic_ms()
        if now_ms - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = now_ms
        try:
            live = yield from self._lane.result(read_live)
        except NoAnswerError as e:
            log.info("brokers in ZooKeeper are not known now error=%s", e)
            return
        before, self._strangers = self._strangers, strangers(self._image, live)
        # One look is not enough: a broker that has just started has not registered yet.
        kept = {broker: reason for broker, reason in self._strangers.items() if broker in before}
        found = [f"broker {broker} {reason}" for broker, reason in sorted(kept.items())]
        for one in found:
            if one not in self.incompatible:
                log.warning("broker cannot take part in the migration and gets no requests reason=%s", one)
        self.incompatible = found
        self._brokers.exclude(kept)

    def _position(self) -> MigrationValue:
        return MigrationValue(self._node_id, self._kraft_epoch, self._image.offset, self._image.epoch)

    def _write(self, entities: Entities, reached: MigrationValue) -> DriverLife:
        """Write the entities as they are in the image; then `/migration` says `reached`."""
        parts = [*entities.parts(ENTITIES_AT_ONCE)] or [Entities()]
        for index, part in enumerate(parts):
            yield from self._patiently(self._writes(part, reached if index == len(parts) - 1 else None))
        self.written_offset = reached.offset
        self._note_blocking()

    def _writes(self, part: Entities, reached: MigrationValue | None) -> Callable[[ZnodeWriter], int]:
        wanted = ImageReader(self._image).wanted(part)
        return lambda writer: writer.write(wanted, reached)

    def _patiently(self, work: Callable[[ZnodeWriter], Any]) -> DriverLife:
        """The result of `work`, repeated in new sessions until ZooKeeper answers."""
        while True:
            held = self._claim
            assert held is not None, "law: only the holder of a claim writes"

            def act(zookeeper: ZooKeeper, held: ControllerClaim = held) -> tuple[Any, ControllerClaim]:
                writer = ZnodeWriter(zookeeper, held, self._passwords)
                return work(writer), writer.claim

            is_new = self._lane.session is None or self._lane.session is not self._proved
            try:
                if is_new:
                    again = yield from self._lane.result(partial(claimed_again, former=held))
                    if again is None or again.value.controller_epoch != self._kraft_epoch:
                        raise ClaimError("the claim of ZooKeeper is over")
                    self._claim, self._proved = again, self._lane.session
                    continue
                result, self._claim = yield from self._lane.result(act)
                self.blockers = []
                self._pause_ms = PAUSE_FIRST_MS
                return result
            except (NoAnswerError, ZnodeError) as e:
                self.blockers = [str(e)]
                log.warning("ZooKeeper is not written, and waits error=%s", e)
                yield self._pause()
