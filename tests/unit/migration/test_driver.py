"""The driver of a migration and its sessions of ZooKeeper; `sim/migration` has its laws under faults."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pytest

from kraft_node.base.env import Env
from kraft_node.metadata.features import parse_metadata_version
from kraft_node.metadata.loader import MetadataLoader
from kraft_node.migration.claim import ControllerClaim, claim
from kraft_node.migration.driver import LOOK_MS, REQUESTS_MS, MigrationDriver
from kraft_node.migration.entities import Entities
from kraft_node.migration.reading import MetadataReader
from kraft_node.migration.states import DriverState
from kraft_node.migration.tree import paths
from kraft_node.migration.writing import ZnodeWriter
from kraft_node.testing.zookeeper import SimSession, SimZooKeeper
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.stored import (
    ConfigRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    ZkMigrationStateRecord,
)
from tests.stopped_time import SeededRandom, StoppedTime

MIGRATION, PRE_MIGRATION = 1, 2
BROKER = RegisterBrokerRecord(1, True, Uuid(b"b" * 16), 7, fenced=False)


class World:
    """One driver, whose metadata log has the migration by default. Jobs of the lane wait for `settle`."""

    def __init__(self, state: int = MIGRATION, level: int = 21) -> None:
        self.time = StoppedTime(now=1_000)
        self.servers = SimZooKeeper()
        self.servers.put(paths.CONTROLLER_EPOCH, b"4")
        self.servers.put("/config/changes")
        claim(self.servers.session(), 3002, 1, 0)
        self.sessions: list[SimSession] = []
        self.told: list[int] = []
        """The epochs of claims that were announced to the brokers."""
        self.untold: list[str] = []
        """Why brokers do not learn of them."""
        self.old: SimZooKeeper | None = None
        """A server that has not followed yet; sessions read from it."""
        self.jobs: deque[tuple[Any, Any]] = deque()
        self.loader = MetadataLoader()
        self.offset = 0
        nothing: Any = None
        lane: Any = self
        env = Env(self.time, self.time, SeededRandom(), nothing, lane, nothing)
        image = self.loader.image
        self.driver = MigrationDriver(env, 3001, "c", image, self, self, self._connect, lambda: [3001], None)
        self.loader.publishers.append(self.driver.moved)
        self.commit(FeatureLevelRecord("metadata.version", level), ZkMigrationStateRecord(state))
        if state == MIGRATION:
            self.commit(TopicRecord("a", Uuid(b"a" * 16)))

    def _connect(self) -> SimSession:
        made = self.servers.session()
        self.sessions.append(_Session(self, made.number))
        return self.sessions[-1]

    # Background, MigrationLog and BrokerLink

    def submit(self, lane: str, work: Any, done: Any) -> None:
        del lane
        self.jobs.append((work, done))

    def append(self, records: Sequence[Any], committed: Any) -> None:
        self.commit(*records)
        self.time.call_soon(committed)

    def announce(self, held: ControllerClaim, done: Any) -> None:
        self.told.append(held.epoch)
        self.time.call_soon(done, self.untold)

    def begin(self, held: ControllerClaim) -> None: ...

    def end(self) -> None: ...

    def exclude(self, broker_ids: Collection[int]) -> None: ...

    # What happens

    def commit(self, *records: Any) -> None:
        self.loader.apply([(self.offset + i, record) for i, record in enumerate(records)], 2, 0)
        self.offset += len(records)
        self.loader.publish()

    def settle(self) -> None:
        """Let the lane do its jobs."""
        self.time.advance(0)
        while self.jobs:
            work, done = self.jobs.popleft()
            try:
                result = work()
            except Exception as e:  # the lane's contract: an exception is a result
                result = e
            done(result)
            self.time.advance(0)

    def rest(self, ms: int) -> None:
        for _ in range(0, ms, 100):
            self.time.advance(100)
            self.settle()

    def lead(self) -> None:
        self.driver.led(2)
        self.settle()
        assert self.driver.state is DriverState.DUAL_WRITE

    def retain(self, value: str) -> None:
        self.commit(ConfigRecord(2, "a", "retention.ms", value))
        self.settle()

    @property
    def retention(self) -> str:
        found: str = json.loads(self.servers.data()["/config/topics/a"])["config"]["retention.ms"]
        return found


class _Session(SimSession):
    """Writes go to the leader; reads come from the server of the session."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world.servers, number)
        self._world = world

    def _read(self) -> None:
        super()._read()
        self._servers = self._world.old or self._world.servers

    def get(self, paths: Sequence[str]) -> list[Any]:
        try:
            return super().get(paths)
        finally:
            self._servers = self._world.servers

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        try:
            return super().children(paths)
        finally:
            self._servers = self._world.servers


@pytest.mark.parametrize("release", ["3.4", "3.5"])
def test_a_migration_that_an_older_release_began_is_continued(release: str) -> None:
    """Apache Kafka 3.9.2 begins migrations from 3.6-IV1 on, too, and continues those of older controllers."""
    world = World(level=parse_metadata_version(release).level)
    world.lead()
    world.retain("1")
    assert (world.retention, world.driver.lag) == ("1", 0)


def test_a_session_that_begins_while_the_leadership_is_lost_is_closed() -> None:
    """It stayed open, with its threads, for as long as the process lived."""
    world = World()
    world.driver.led(2)
    assert len(world.jobs) == 1, "the session begins in the lane"
    world.driver.lost()
    world.settle()
    assert len(world.sessions) == 1
    assert not world.servers.alive(world.sessions[0].number)


def test_sessions_are_closed_once_they_are_lost_or_not_needed() -> None:
    world = World()
    world.lead()
    world.servers.expire(world.sessions[0].number)
    world.retain("1")
    world.rest(1_000)
    assert (world.retention, len(world.sessions)) == ("1", 2)
    world.driver.lost()
    world.settle()
    assert not [one for one in world.sessions if world.servers.alive(one.number)]


def test_a_new_session_writes_only_after_it_has_seen_the_own_last_write() -> None:
    """The look at ZooKeeper's brokers began it, at a server that was behind: there, a change back needed no write."""
    world = World()
    world.retain("1")
    world.lead()
    before = SimZooKeeper(nodes=dict(world.servers.nodes))
    world.retain("2")
    assert world.retention == "2"
    world.servers.expire(world.sessions[-1].number)
    world.rest(LOOK_MS)  # this look has no answer
    world.old = before
    world.rest(LOOK_MS)
    assert len(world.sessions) == 2
    world.retain("1")
    world.rest(1_000)
    world.old = None
    world.rest(120_000)
    assert (world.retention, world.driver.lag) == ("1", 0)


def test_a_new_controller_counts_the_records_that_its_predecessor_has_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a long log, changes were refused after each fail-over until all of ZooKeeper was compared with the log."""
    monkeypatch.setattr("kraft_node.migration.driver.LAG_RECORDS_MAX", 5)
    world = World()
    world.lead()
    for value in range(20):
        world.retain(str(value))
    world.driver.lost()
    world.settle()
    world.driver.written_offset = -1  # as of another process
    world.commit(ConfigRecord(2, "a", "retention.ms", "20"))
    seen = []
    monkeypatch.setattr(ZnodeWriter, "existing", lambda _: seen.append(world.driver.lag) or Entities())
    world.driver.led(3)
    assert world.driver.blocks_writes, "ZooKeeper is not claimed"
    world.settle()
    assert seen == [1]
    assert (world.retention, world.driver.lag) == ("20", 0)


def _before_the_migration() -> World:
    """A controller that waits for broker 1."""
    world = World(PRE_MIGRATION)
    world.servers.put(paths.CLUSTER_ID, b'{"version":"1","id":"c"}')
    for path in ("/admin/delete_topics", "/config/topics", paths.TOPICS, paths.BROKER_IDS, f"{paths.BROKER_IDS}/1"):
        world.servers.put(path, b"{}")
    world.servers.remove(paths.MIGRATION)
    world.commit(RegisterControllerRecord(3001, Uuid(b"c" * 16), True, [], []))
    world.driver.led(2)
    return world


def test_a_migration_begins_as_soon_as_the_last_broker_has_registered() -> None:
    """It began up to a minute later, and meanwhile the status named a blocker that was gone."""
    world = _before_the_migration()
    world.rest(5 * 60_000)
    assert world.driver.state is DriverState.WAIT_FOR_BROKERS
    assert "broker 1 has not registered here" in world.driver.blockers[0]
    world.commit(BROKER)
    world.rest(REQUESTS_MS + 1_000)
    assert world.driver.state is DriverState.DUAL_WRITE, world.driver.blockers


def test_brokers_learn_who_the_controller_is_before_zookeeper_is_read() -> None:
    """ACLs that brokers wrote to ZooKeeper after the read were undone, although clients had the acknowledgement."""
    world = _before_the_migration()
    world.commit(BROKER)
    world.rest(REQUESTS_MS - 100)
    assert world.told == [6]
    assert (world.driver.state, world.loader.in_transaction) == (DriverState.ZK_MIGRATION, False)
    world.servers.put("/config/brokers/1", b'{"version":1,"config":{"log.cleaner.threads":"7"}}')
    world.rest(1_000)
    assert world.loader.image.configs.get((4, "1")) == {"log.cleaner.threads": "7"}


def test_zookeeper_is_given_back_if_a_broker_does_not_learn_who_the_controller_is() -> None:
    world = _before_the_migration()
    world.untold = ["broker 1: Connection refused"]
    world.commit(BROKER)
    world.rest(300)
    (blocker,) = world.driver.blockers
    assert blocker == "brokers do not learn who the controller is: broker 1: Connection refused"
    assert not {paths.CONTROLLER, paths.MIGRATION} & world.servers.data().keys()
    assert not world.loader.in_transaction
    world.untold = []
    world.rest(10_000)
    assert world.driver.state is DriverState.DUAL_WRITE


@pytest.mark.parametrize(
    ("path", "is_counted"),
    [("/config/changes/config_change_0000000007", True), ("/brokers/topics/late", True), ("/config/topics/a", False)],
)
def test_a_change_while_zookeeper_is_read_aborts_the_migration(
    path: str, is_counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = _before_the_migration()

    def batches(_: Any) -> Iterator[list[Any]]:
        world.servers.put(path)
        monkeypatch.undo()
        yield [TopicRecord("read", Uuid(b"r" * 16))]

    monkeypatch.setattr(MetadataReader, "batches", batches)
    world.commit(BROKER)
    world.rest(REQUESTS_MS + 200)
    aborted = [text for text in world.driver.blockers if "has changed while the metadata was read" in text]
    assert bool(aborted) is is_counted
    world.servers.remove(path)
    world.rest(10_000)
    assert world.driver.state is DriverState.DUAL_WRITE
    assert (world.loader.image.topics.by_name("read") is None) is is_counted
