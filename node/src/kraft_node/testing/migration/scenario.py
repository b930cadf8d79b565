"""One migration under faults: leaders change and crash, ZooKeeper goes away, sessions expire, answers are lost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.kinds.zk_migration import MIGRATION, POST_MIGRATION
from kraft_node.metadata.loader import MetadataLoader
from kraft_node.migration.claim import ControllerClaim, read_progress
from kraft_node.migration.driver import MigrationDriver
from kraft_node.migration.entities import ImageReader, of_image
from kraft_node.migration.passwords import PasswordEncoder
from kraft_node.migration.states import DriverState, VisibleState, visible_state
from kraft_node.migration.tree import paths
from kraft_node.migration.tree.access import AclEntry, acl_change_data, acls_data
from kraft_node.migration.tree.values import (
    MigrationValue,
    ZnodeError,
    read_controller,
    read_epoch,
)
from kraft_node.migration.writing import ZnodeWriter
from kraft_node.migration.zookeeper import Check, Create, NoAnswerError, Operation, SetData, TransactionError, ZooKeeper
from kraft_node.testing.migration.laws import SPOILED, MigrationLaws
from kraft_node.testing.migration.loop import SimSurroundings, SimTime
from kraft_node.testing.migration.quorum import QuorumMember, QuorumModel
from kraft_node.testing.migration.records import (
    BROKERS,
    CONTROLLERS,
    change,
    first_records,
    registration,
    topic_records,
)
from kraft_node.testing.zookeeper import SimSession, SimZooKeeper
from kraft_protocol.wire.stored import ZkMigrationStateRecord

CLUSTER: Final = "simulated"
FAULTS_MS: Final = 60_000
SETTLE_MS: Final = 400_000
SLICE_MS: Final = 1_000
LOST_READS: Final = 0.02
UNTOLD: Final = 0.1
"""How often a broker does not answer an announcement."""
ANSWER_MS_MAX: Final = 200
WRITE_MS_MAX: Final = 500
"""How long a broker may take to write to ZooKeeper what it was asked for."""
LITERAL: Final = 3
TOPIC: Final = 2
"""Of ACLs."""
OLD_OWNER: Final = "ZooKeeper's own controller"


class RunOutcome(NamedTuple):
    """What a run has seen, so that a test can prove that it saw enough."""

    seed: int
    broken: str | None
    migrations: int
    undone: int
    moves: int


class OldController:
    """A broker that is the controller by ZooKeeper, and its changes."""

    def __init__(self, world: MigrationScenario) -> None:
        self._world = world
        self._image = MetadataImage()
        self._session: SimSession | None = None
        self._claim: ControllerClaim | None = None

    def act(self) -> None:
        """Become the controller if the cluster has no controller; write a change if it still is the controller."""
        world = self._world
        if world.is_kraft:
            return
        world.time.at(world.time.rng.uniform(100, 3_000), self.act)
        try:
            self._elect()
            if self._claim is not None:
                self._write(topic_records if not len(self._image.topics) else change)
        except NoAnswerError:
            self._session = self._claim = None
        except TransactionError:
            self._claim = None
        except ZnodeError:
            return  # it writes everything once the znode is mended

    def _elect(self) -> None:
        if self._session is None:
            self._session = self._world.servers.session()
            self._world.owners[self._session.number] = OLD_OWNER
        controller, epoch = self._session.get([paths.CONTROLLER, paths.CONTROLLER_EPOCH])
        if controller is not None:
            if read_controller(paths.CONTROLLER, controller.data).kraft_epoch >= 0:
                self._claim = None
            return
        assert epoch is not None
        number = read_epoch(paths.CONTROLLER_EPOCH, epoch.data) + 1
        data = b'{"version":2,"brokerid":1,"timestamp":"0","kraftControllerEpoch":-1}'
        claim: list[Operation] = [
            SetData(paths.CONTROLLER_EPOCH, str(number).encode(), epoch.version),
            Create(paths.CONTROLLER, data),
        ]
        self._session.commit(claim)
        self._claim = ControllerClaim(number, epoch.version + 1, 0, MigrationValue())
        for broker in self._world.brokers:
            delay_ms = self._world.time.rng.uniform(0.1, ANSWER_MS_MAX)
            self._world.time.at(delay_ms, partial(broker.told, number, of_kraft=False))

    def _write(self, make: Any) -> None:
        assert self._session is not None and self._claim is not None
        rng = self._world.time.rng
        records = topic_records(rng, "first") if make is topic_records else make(rng, self._image)
        for record in records:
            self._image.replay(record)
        self._image.take_delta()
        writer = _UnmigratedWriter(self._session, self._claim, PasswordEncoder(None, self._world.plain_rng))
        entities = of_image(self._image)
        entities.update(writer.existing())
        writer.write(ImageReader(self._image).wanted(entities), None)


class OldBroker:
    """A broker that uses ZooKeeper. Until it knows of a KRaft controller, it writes ACLs there.

    As in Apache Kafka 3.9.2, no controller is checked, and the announcement of the change is a second write.
    """

    def __init__(self, world: MigrationScenario, broker_id: int) -> None:
        self.id = broker_id
        self._world = world
        self._epoch = -1
        self._follows_kraft = False

    def told(self, epoch: int, *, of_kraft: bool) -> None:
        """A controller has announced itself in its epoch."""
        if epoch >= self._epoch:
            self._epoch, self._follows_kraft = epoch, of_kraft

    def act(self) -> None:
        """Begin a change now and then. It may reach ZooKeeper after an announcement."""
        rng = self._world.time.rng
        self._world.time.at(rng.uniform(100, 2_000), self.act)
        if not self._follows_kraft:
            self._world.time.at(rng.uniform(0, WRITE_MS_MAX), self._write, str(rng.randrange(1_000)))

    def _write(self, host: str) -> None:
        world, resource = self._world, (LITERAL, TOPIC, f"of broker {self.id}")
        assert not world.is_kraft, f"kept: broker {self.id} has written to ZooKeeper after the migration: it is lost"
        with world.laws.others_write():
            world.servers.put(paths.acls(*resource), acls_data([AclEntry("User:a", host, 3, 3)]))
        world.time.at(
            world.time.rng.uniform(0.1, 5),
            self._announce,
            Create(paths.acl_change(LITERAL), acl_change_data(*resource), sequential=True),
        )

    def _announce(self, change: Create) -> None:
        with self._world.laws.others_write():
            self._world.servers.carry_out([change])


class _UnmigratedWriter(ZnodeWriter):
    """As ZooKeeper's own controllers write: only the epoch is checked."""

    def _commit(self, operations: Sequence[Operation], reached: MigrationValue | None) -> None:
        del reached
        self._zookeeper.commit([Check(paths.CONTROLLER_EPOCH, self.claim.epoch_version), *operations])


class MigratingController:
    """One process with its driver."""

    def __init__(self, world: MigrationScenario, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.surroundings = SimSurroundings(world.time)
        self.member = QuorumMember(world.quorum)
        self.epoch = -1
        self.sessions: list[SimSession] = []
        self.begun: list[ControllerClaim] = []
        self.driver = MigrationDriver(
            self.surroundings,  # type: ignore[arg-type]  # the part of Env that a driver uses
            node_id,
            CLUSTER,
            self.member.loader.image,
            self,
            self,
            self._connect,
            lambda: CONTROLLERS,
            None,
        )
        self.member.loader.publishers.append(self.driver.moved)
        self.member.elected = self._elected
        self.member.deposed = self._deposed

    def _elected(self, epoch: int) -> None:
        self.epoch = epoch
        self.driver.led(epoch)

    def _deposed(self, newer: int) -> None:
        if self.epoch < newer:
            self.driver.lost()

    def _connect(self) -> ZooKeeper:
        session = self.world.servers.session()
        self.world.owners[session.number] = (self.node_id, self.epoch)
        self.sessions.append(session)
        return session

    # MigrationLog and BrokerLink

    def append(self, records: Sequence[Any], committed: Any) -> None:
        """Hand the records to the quorum in this process's last epoch; they are lost if that epoch is over."""
        self.world.quorum.append(self.member, self.epoch, records, committed)

    def announce(self, held: ControllerClaim, done: Callable[[list[str]], None]) -> None:
        """Tell the brokers who the controller is. Now and then one of them does not answer."""
        failures = []
        for broker in self.world.brokers:
            if self.world.answers():
                self.world.time.at(
                    self.world.time.rng.uniform(0.1, ANSWER_MS_MAX), partial(broker.told, held.epoch, of_kraft=True)
                )
            else:
                failures.append(f"broker {broker.id}: no answer")
        self.world.time.at(ANSWER_MS_MAX, self.surroundings.alive, done, failures)

    def begin(self, held: ControllerClaim) -> None:
        """Note the claim. Raises AssertionError if the brokers are begun a second time in its epoch."""
        assert held.epoch not in [one.epoch for one in self.begun], "steered: brokers are begun twice in one claim"
        self.begun.append(held)

    def end(self) -> None:
        """Brokers get nothing more."""

    def exclude(self, broker_ids: Collection[int]) -> None:
        """Brokers of ZooKeeper that are not registered."""
        assert set(broker_ids) <= set(BROKERS), "strangers: only brokers of ZooKeeper can be strangers"

    def crash(self) -> None:
        """End as by a SIGKILL: sessions expire later."""
        self.surroundings.dead = self.member.is_dead = True
        self.world.quorum.members.remove(self.member)
        for session in self.sessions:
            self.world.time.at(self.world.time.rng.uniform(0, 6_000), self.world.servers.expire, session.number)


class MigrationScenario:
    """A run of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.time = SimTime(seed)
        self.plain_rng = SimSurroundings(self.time).rng
        self.servers = SimZooKeeper()
        self.owners: dict[int, Any] = {}
        self.laws = MigrationLaws(self.servers)
        self.quorum = QuorumModel(self.time, first_records())
        self.quorum.on_commit = self._committed
        self._mirror = MetadataLoader()
        self._mirrored = 0
        self.is_quiet = False
        self.brokers = [OldBroker(self, broker_id) for broker_id in BROKERS]
        self.controllers = {node_id: MigratingController(self, node_id) for node_id in CONTROLLERS}
        self._prepare()

    @property
    def is_kraft(self) -> bool:
        """Whether the committed state is MIGRATION: KRaft leads, ZooKeeper gets a copy. False again in the end."""
        return self._mirror.image.zk_migration_state == MIGRATION

    def _prepare(self) -> None:
        servers = self.servers
        servers.put(paths.CLUSTER_ID, b'{"version":"1","id":"simulated"}')
        for path in (
            "/admin/delete_topics",
            "/config/changes",
            "/kafka-acl/Topic",
            "/kafka-acl-changes",
            paths.TOPICS,
            paths.BROKER_IDS,
        ):
            servers.put(path)
        servers.put(paths.CONTROLLER_EPOCH, b"1")
        for broker in BROKERS:
            servers.put(f"{paths.BROKER_IDS}/{broker}", b"{}")
        rng = self.time.rng
        servers.lose_next = self._loses
        servers.lose_read = lambda: not self.is_quiet and rng.random() < LOST_READS
        servers.on_commit = lambda session, operations: self.laws.written(self.owners.get(session), operations)
        self.time.at(0, OldController(self).act)
        for broker in BROKERS:
            self.time.at(rng.uniform(0, 10_000), self._register, broker)
        for old in self.brokers:
            self.time.at(rng.uniform(0, 2_000), old.act)
        self.time.at(rng.uniform(0, 3_000), self._elect)
        self.time.at(100, self._work)
        self.time.at(rng.uniform(1_000, 8_000), self._fault)
        if rng.random() < 0.3:
            self.time.at(rng.uniform(0, 5_000), self._spoil)

    def _register(self, broker: int) -> None:
        leader = self._leader()
        if leader is None or leader.member.loader.in_transaction:
            self.time.at(500, self._register, broker)
        elif broker not in leader.member.loader.image.brokers:
            leader.append([registration(broker)], lambda: None)
            self.time.at(1_000, self._register, broker)

    def _leader(self) -> MigratingController | None:
        return next((one for one in self.controllers.values() if one.member is self.quorum.leader), None)

    def _elect(self) -> None:
        self.quorum.elect(self.time.rng.choice(list(self.controllers.values())).member)

    def _work(self) -> None:
        """Change something if the active controller may, one change after another."""
        self.time.at(self.time.rng.uniform(50, 800), self._work)
        leader = self._leader()
        if leader is None or not self.is_kraft or self.is_quiet or leader.driver.blocks_writes:
            return
        if leader.member.busy_until_ms <= self.time.now_ms:
            leader.append(change(self.time.rng, leader.member.loader.image), lambda: None)

    # Faults

    def _loses(self) -> tuple[bool, bool]:
        rng = self.time.rng
        return (False, False) if self.is_quiet or rng.random() > 0.05 else (True, rng.random() < 0.5)

    def answers(self) -> bool:
        """Whether a broker answers an announcement."""
        return self.is_quiet or self.time.rng.random() > UNTOLD

    def _fault(self) -> None:
        rng = self.time.rng
        if self.time.now_ms > FAULTS_MS:
            return
        self.time.at(rng.uniform(200, 6_000), self._fault)
        kind = rng.randrange(5)
        if kind == 0:
            self._elect()
        elif kind == 1:
            self.servers.down = True
            self.time.at(rng.uniform(100, 8_000), self._heal_zookeeper)
        elif kind == 2 and self.owners:
            self.servers.expire(rng.choice(list(self.owners)))
        elif kind == 3:
            node_id = rng.choice(CONTROLLERS)
            self.controllers[node_id].crash()
            self.controllers[node_id] = MigratingController(self, node_id)
            self.controllers[node_id].member.catch_up()
            if self._leader() is None:
                self.time.at(rng.uniform(100, 2_000), self._elect)

    def _heal_zookeeper(self) -> None:
        self.servers.down = False

    def _spoil(self) -> None:
        """A znode that nobody can read, for a while; the gates do not look at it."""
        if not self.is_kraft:
            self.servers.put(SPOILED, b"{}")
            self.time.at(self.time.rng.uniform(2_000, 30_000), self._unspoil)

    def _unspoil(self) -> None:
        self.servers.remove(SPOILED)

    def _committed(self) -> None:
        while self._mirrored < len(self.quorum.committed):
            epoch, record = self.quorum.committed[self._mirrored]
            was_kraft = self.is_kraft
            self._mirror.apply([(self._mirrored, record)], epoch, 0)
            self._mirror.image.take_delta()
            self.laws.committed(self._mirror.image, self._mirrored, is_migrated=self.is_kraft and not was_kraft)
            self._mirrored += 1

    # The run

    def run(self) -> RunOutcome:
        """Run until everything has settled, then finalise. Returns what was seen, with the broken law if any."""
        broken = None
        try:
            self.time.run(FAULTS_MS)
            self._settle()
            self._finalise()
        except AssertionError as e:
            broken = f"at {self.time.now_ms:.0f} ms: {e}"
        return RunOutcome(self.seed, broken, self.laws.migrations, self.laws.undone, self.laws.moves)

    def _settle(self) -> None:
        self.is_quiet = True
        self.servers.down = False
        self._unspoil()
        while self.time.now_ms < SETTLE_MS:
            self.time.run(self.time.now_ms + SLICE_MS)
            leader = self._leader()
            if leader is None:
                self._elect()
            elif leader.driver.state is DriverState.DUAL_WRITE and leader.driver.lag == 0:
                break
        else:
            leader = self._leader()
            state = None if leader is None else (leader.driver.state.name, leader.driver.blockers)
            raise AssertionError(f"settled: the migration does not go on: {state}")
        progress = read_progress_of(self.servers)
        self.laws.settled(leader.member.loader.image, progress)
        assert visible_state(leader.member.loader.image) is VisibleState.MIGRATION_ACTIVE

    def _finalise(self) -> None:
        leader = self._leader()
        assert leader is not None
        leader.append([ZkMigrationStateRecord(POST_MIGRATION)], lambda: None)
        self.time.run(self.time.now_ms + 10 * SLICE_MS)
        self.laws.is_final = True
        self.is_quiet = False
        self.servers.lose_next = lambda: (False, False)
        image = leader.member.loader.image
        leader.append(change(self.time.rng, image) or topic_records(self.time.rng, "last"), lambda: None)
        self.time.run(self.time.now_ms + 2 * SLICE_MS)
        self._elect()
        self.time.run(self.time.now_ms + 10 * SLICE_MS)


def read_progress_of(servers: SimZooKeeper) -> int:
    """The offset in `/migration`."""
    progress = read_progress(SimZooKeeper(nodes=servers.nodes).session())
    return -1 if progress is None else progress.offset
