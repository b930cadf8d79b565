"""The release of ZooKeeper for `kraftcluster migrate revert`: what it refuses, and what it leaves."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from kraft_node.cli import migration_survey
from kraft_node.cli.common import ToolError
from kraft_node.metadata.log_batches import data_batch, encode_values
from kraft_node.migration.claim import claim
from kraft_node.migration.entities import ImageReader, of_image
from kraft_node.migration.passwords import PasswordEncoder
from kraft_node.migration.tree.values import MigrationValue
from kraft_node.migration.writing import ZnodeWriter
from kraft_node.runtime.env import RealRng
from kraft_node.testing.zookeeper import SimZooKeeper
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.stored import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    NoOpRecord,
    TopicRecord,
    ZkMigrationStateRecord,
)
from tests.unit.migration.test_reading_and_writing import image_of

MIGRATION, PRE_MIGRATION, POST_MIGRATION = 1, 2, 3
ELECTED = b'{"version":2,"brokerid":2,"timestamp":"1","kraftControllerEpoch":-1}'
CHANGE = ConfigRecord(2, "a", "retention.ms", "5")


class World:
    """A ZooKeeper that KRaft controller 3001 has claimed, and the metadata log of that controller."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers = SimZooKeeper()
        self.servers.put("/controller_epoch", b"4")
        self.servers.put("/brokers/ids/2", b"{}")
        self.session = self.servers.session()
        self._claim = claim(self.session, 3001, 7, 0)

    def written_up_to(self, offset: int) -> None:
        writer = ZnodeWriter(self.session, self._claim, PasswordEncoder(None, RealRng()))
        image = image_of([])
        writer.write(ImageReader(image).wanted(of_image(image)), MigrationValue(3001, 7, offset, 7))

    def log(self, *records: Any, first: int = 0) -> None:
        """A segment of the metadata log."""
        batch = data_batch(encode_values(records, 21), first, 7, 0)
        (self.folder / f"{first:020}.log").write_bytes(batch)

    def release(self, *, with_log: bool = True) -> dict[str, Any]:
        folder = str(self.folder) if with_log else None
        return migration_survey._release(self.session, Namespace(metadata_log=folder))

    @property
    def is_claimed(self) -> bool:
        return {"/controller", "/migration"} <= self.servers.data().keys()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(migration_survey, "ELECTION_S", 0.0)
    return World(tmp_path)


def migrated(*later: Any) -> list[Any]:
    """A log with a migration that has read one topic, at offset 2."""
    return [
        ZkMigrationStateRecord(PRE_MIGRATION),
        BeginTransactionRecord("ZK Migration"),
        TopicRecord("a", Uuid(b"a" * 16)),
        ZkMigrationStateRecord(MIGRATION),
        EndTransactionRecord(),
        *later,
    ]


def test_zookeeper_with_all_records_is_released_once(world: World) -> None:
    world.log(*migrated(CHANGE, NoOpRecord()))
    world.written_up_to(5)
    assert world.release() == {"released": True, "refusal": None, "controller": None}
    assert not {"/controller", "/migration"} & world.servers.data().keys()
    world.servers.put("/controller", ELECTED)
    assert world.release() == {"released": False, "refusal": None, "controller": 2}


def test_a_release_reports_the_broker_that_became_the_controller(world: World) -> None:
    world.servers.on_commit = lambda *_: world.servers.put("/controller", ELECTED)
    assert world.release(with_log=False)["controller"] == 2


def test_zookeeper_that_lacks_a_record_is_not_released(world: World) -> None:
    world.log(*migrated(CHANGE, NoOpRecord(), CHANGE))
    world.written_up_to(5)
    refusal = world.release()["refusal"]
    assert f"lacks 1 records of {world.folder}, the first at offset 7 ConfigRecord" in refusal
    assert world.is_claimed


def test_zookeeper_that_was_never_written_lacks_what_follows_the_migration(world: World) -> None:
    """All controllers died before the first synchronization: /migration has no offset, and that counted as complete."""
    world.log(*migrated(CHANGE))
    assert "the first at offset 5 ConfigRecord" in world.release()["refusal"]
    assert world.is_claimed
    world.log(*migrated())
    assert world.release()["released"]


def test_an_aborted_migration_leaves_nothing_to_write(world: World) -> None:
    world.log(*migrated()[:3], AbortTransactionRecord("no answer"))
    assert world.release()["released"]


def test_a_finished_migration_is_not_reverted(world: World) -> None:
    """Without a controller that answers, only the log knows; its last record is one that ZooKeeper does not need."""
    world.log(*migrated(ZkMigrationStateRecord(POST_MIGRATION)))
    world.written_up_to(4)
    assert "the migration is finished (offset 5 of" in world.release()["refusal"]
    assert world.is_claimed


def test_zookeeper_without_brokers_is_not_released(world: World) -> None:
    """Controllers were stopped before the brokers had gone back: no broker could have become the controller."""
    world.servers.remove("/brokers/ids/2")
    world.written_up_to(5)
    assert "no broker is registered in ZooKeeper" in world.release(with_log=False)["refusal"]
    assert world.is_claimed


def test_a_log_that_begins_too_late_is_refused(world: World) -> None:
    world.log(CHANGE, first=9)
    world.written_up_to(5)
    with pytest.raises(ToolError, match=r"begins at 0+9, after offset 5 in ZooKeeper"):
        world.release()
    assert world.is_claimed


def test_a_folder_without_a_log_is_refused(world: World) -> None:
    world.written_up_to(5)
    with pytest.raises(ToolError, match="no segment of a metadata log is here"):
        world.release()
