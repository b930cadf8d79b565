"""`kraftcluster migrate revert`: what is due in each state, and what ZooKeeper's release answers."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kraft_cli.kraftcluster import main

REVERT: Any = importlib.import_module("kraft_cli.migration.revert")
MIGRATION, FINISHED = 1, 3
SILENT = {"problem": "Connection refused"}
RELEASED = {"released": True, "refusal": None, "controller": 1}


def page(number: int, **changes: Any) -> dict[str, Any]:
    """A controller; with `changes`, the active one."""
    migration = {
        "isActive": bool(changes),
        "state": "MIGRATION_ACTIVE",
        "driver": "DUAL_WRITE" if changes else "INACTIVE",
        "lagRecords": 0,
        "kraftBrokers": [],
        "zookeeperBrokers": [1, 2],
    }
    return {"nodeId": number, "zkMigrationState": MIGRATION, "migration": {**migration, **changes}}


class Stage:
    """The command with pages of controllers and an answer of the release that a test gives."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pages: dict[str, dict[str, Any]] = {}
        self.answer: dict[str, Any] = dict(RELEASED)
        self.asked: list[tuple[Any, ...]] = []
        monkeypatch.setattr(REVERT, "read_page", lambda address: self.pages[address])
        monkeypatch.setattr(REVERT, "run_survey", self._release)

    def _release(self, name: str, zookeeper: str, **files: Path | None) -> dict[str, Any]:
        self.asked.append((name, zookeeper, files["metadata_log"]))
        return self.answer

    def run(self, *pages: dict[str, Any], words: tuple[str, ...] = ("--json",)) -> Result:
        self.pages = {f"c{number}:9100": one for number, one in enumerate(pages)}
        return CliRunner().invoke(main, ["migrate", "revert", "--zookeeper", "z:2181", *words, *self.pages])

    def due(self, *pages: dict[str, Any]) -> tuple[str, str]:
        """What must be done first: ZooKeeper is not released."""
        done = self.run(*pages)
        assert (done.exit_code, type(done.exception)) == (1, SystemExit), done.output
        assert self.asked == []
        found = json.loads(done.output)
        assert not found["done"]
        return found["step"], found["next"]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_brokers_go_back_before_controllers_stop(stage: Stage) -> None:
    step, text = stage.due(page(3001), page(3002, kraftBrokers=[2, 3], lagRecords=5))
    assert step == "brokers"
    assert "stop the brokers 2, 3 one by one" in text


@pytest.mark.parametrize(
    "changes", [{"lagRecords": 5}, {"driver": "SYNC_KRAFT_TO_ZK"}, {"driver": "BECOME_CONTROLLER"}]
)
def test_controllers_stop_once_zookeeper_is_not_behind(stage: Stage, changes: dict[str, Any]) -> None:
    step, text = stage.due(page(3001), page(3002, **changes))
    assert step == "lag"
    assert "wait until ZooKeeper has everything" in text


def test_the_active_controller_stops_last(stage: Stage) -> None:
    ready = page(3002, driver="DUAL_WRITE")
    assert stage.due(page(3001), ready, page(3003)) == (
        "stop",
        "stop the controllers 3001, 3003 first, then 3002; then run this again",
    )
    assert stage.due(ready) == ("stop", "stop controller 3002; then run this again")


def test_before_the_migration_controllers_may_stop_at_once(stage: Stage) -> None:
    assert stage.due(page(3001, state="MIGRATION_READY", driver="WAIT_FOR_BROKERS"))[0] == "stop"


def test_controllers_without_an_active_one_must_stop_too(stage: Stage) -> None:
    assert stage.due(page(3001), page(3003), SILENT) == ("stop", "stop the controllers 3001, 3003, then run this again")


def test_a_finished_migration_cannot_be_reverted(stage: Stage) -> None:
    done = stage.run(SILENT, {"nodeId": 3001, "zkMigrationState": FINISHED})
    assert (done.exit_code, stage.asked) == (3, [])
    assert "the migration is finished" in done.output
    assert "there is no way back" in done.output


def test_zookeeper_is_released_once_no_controller_answers(stage: Stage, tmp_path: Path) -> None:
    done = stage.run(SILENT, SILENT, words=("--json", "--metadata-log", str(tmp_path)))
    assert done.exit_code == 0, done.output
    assert stage.asked == [("release", "z:2181", tmp_path)]
    found = json.loads(done.output)
    assert (found["step"], found["done"], found["released"], found["controller"]) == ("released", True, True, 1)
    assert found["next"].startswith("restart the brokers one by one with their former configurations")
    text = stage.run(SILENT, words=()).output
    assert "is given back" in text
    assert "controller   1" in text


def test_a_second_run_after_a_release_finds_nothing_to_do(stage: Stage) -> None:
    stage.answer["released"] = False
    done = stage.run(SILENT)
    assert (done.exit_code, json.loads(done.output)["done"]) == (0, True)
    assert "was not claimed by a KRaft controller" in stage.run(SILENT, words=()).output


def test_a_release_without_a_new_controller_is_not_done(stage: Stage) -> None:
    stage.answer["controller"] = None
    done = stage.run(SILENT)
    assert done.exit_code == 1
    found = json.loads(done.output)
    assert (found["done"], found["controller"]) == (False, None)
    assert "no broker has become the controller" in found["next"]


def test_a_refusal_of_the_release_is_final(stage: Stage) -> None:
    stage.answer = {"released": False, "refusal": "ZooKeeper lacks 2 records", "controller": None}
    done = stage.run(SILENT)
    assert (done.exit_code, type(done.exception)) == (3, SystemExit)
    assert "ZooKeeper lacks 2 records" in done.output


def test_the_folder_of_the_metadata_log_must_exist(stage: Stage, tmp_path: Path) -> None:
    done = stage.run(SILENT, words=("--metadata-log", str(tmp_path / "missing")))
    assert (done.exit_code, stage.asked) == (2, [])
    assert "does not exist" in done.output
