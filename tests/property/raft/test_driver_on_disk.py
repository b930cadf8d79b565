"""One voter with its real files on a disk that loses power: committed records stay for good."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft_node.log.metadata_log import MetadataLog
from kraft_node.raft.membership.quorum import ReplicaKey, Voter, VoterSet
from kraft_node.raft.snapshots import SnapshotPolicy
from kraft_node.server.faults import FaultHandler
from kraft_node.server.quorum.driver import RaftDriver
from kraft_node.testing.disk import SimDisk
from kraft_node.testing.world import SimHost, World
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import stored
from tests.property.metadata.naive import Naive, Stories, dump
from tests.tiers import examples
from tests.unit.server.quorum.raft_world import append

DIRECTORY = Uuid(b"D" * 16)
LEVEL = stored.FeatureLevelRecord(name="metadata.version", feature_level=30)


class Life:
    """One process, from opening the directory to the power loss."""

    def __init__(self, host: SimHost) -> None:
        self.fatal: list[str] = []
        self.epochs: list[int] = []
        self.committed = -1
        env = host.env(None)  # type: ignore[arg-type]
        self.storage = MetadataLog(env, "data")
        self.driver = RaftDriver(
            env,
            self.storage,
            local=ReplicaKey(1, DIRECTORY),
            voters=VoterSet([Voter(ReplicaKey(1))]),
            cluster_id="c",
            policy=SnapshotPolicy(max_new_record_bytes=3000, retention_bytes=6000),
        )
        self.driver.faults = FaultHandler(self.fatal.append)
        self.driver.on_leader.append(self.epochs.append)
        self.driver.on_commit.append(self._commit)
        self.driver.metadata_level = lambda: 30

    @property
    def found_offset(self) -> int:
        """The last offset on the disk, before the record that opened this life's epoch."""
        return self.driver.node.leader.progress.epoch_start_offset - 1

    def _commit(self, offset: int) -> None:
        assert offset >= self.committed
        self.committed = offset


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 2**32))
def test_committed_records_survive_the_loss_of_power(seed: int) -> None:
    world = World(seed)
    rng = Random(seed)
    disk = SimDisk(world.rng, lambda: int(world.now_ms))
    disk.mkdir("data")
    disk.fsync_dir("data")
    disk.fsync_dir(".")
    host = SimHost(world, "one", disk)
    stories = Stories(seed)
    # The appended records by offset, and the model after each offset.
    models: dict[int, Naive] = {}
    highest_epoch = 0
    committed = -1
    for _ in range(rng.randint(2, 6)):
        life = Life(host)
        driver = life.driver
        driver.start()
        assert world.run(lambda: bool(life.epochs), 60_000), "a lone voter leads"  # noqa: B023
        assert life.epochs[0] > highest_epoch, "every life has an epoch of its own"
        highest_epoch = life.epochs[0]
        assert life.committed >= committed, "what was committed is still there"
        stories.model = _model_at(models, life.found_offset)
        assert dump(driver.image) == stories.model.dump()
        if not models:
            append(driver, [LEVEL])
            stories.model.replay(LEVEL)
            models[driver.next_offset - 1] = stories.model.copy()
        for _ in range(rng.randint(1, 40)):
            last = append(driver, stories.records(rng.randint(1, 8)))
            models[last] = stories.model.copy()
            world.rest(rng.random() * 40)
        assert not life.fatal
        committed = life.committed
        models = {offset: model for offset, model in models.items() if offset < driver.next_offset}
        host.end_life()
        disk.kill_process()
        if rng.random() < 0.7:
            disk.lose_power()
        else:
            # The page cache survives the process: all writes are still there.
            committed = max(committed, life.storage.end_offset - 1)
    final = Life(host)
    final.driver.start()
    assert world.run(lambda: bool(final.epochs), 60_000)
    assert final.committed >= committed
    assert dump(final.driver.image) == _model_at(models, final.found_offset).dump()


def _model_at(models: dict[int, Any], offset: int) -> Naive:
    """The model's state after everything up to `offset` was committed; appends count whole."""
    below = [known for known in models if known <= offset]
    for known in [known for known in models if known > offset]:
        del models[known]
    return models[max(below)].copy() if below else Naive()
