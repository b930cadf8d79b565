"""`kraftcluster migrate finalize`: what it refuses, the order of the restarts, and runs that were killed half-way."""

from __future__ import annotations

import importlib
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kraft_cli.kraftcluster import main
from kraft_protocol.configs.properties import parse_properties

FINALIZE: Any = importlib.import_module("kraft_cli.migration.finalize")
KEY = "zookeeper.metadata.migration.enable"
MIGRATION, FINISHED = 1, 3
IDS = (3001, 3002, 3003)
ADDRESSES = {f"c{number}:9100": number for number in IDS}


class Controllers:
    """Three controllers of a migration without brokers that use ZooKeeper; 3002 is active at first.

    A controller has the key set to false once the file with its id exists in `restarted`. As soon as one of them leads,
    the migration is finished.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files = [folder / f"controller-{number}.properties" for number in IDS]
        for number, path in zip(IDS, self.files, strict=True):
            path.write_text(f"node.id={number}\n# kept\n{KEY} = true\nlog.dirs=/d\n")
            path.chmod(0o600)
        self.restarted = folder / "restarted"
        self.restarted.mkdir()
        self.active = 3002
        self.silent: dict[int, str] = {}
        self.changes: dict[str, Any] = {}
        """Fields of the active controller's page about the migration."""
        self.without_key: dict[str, Any] = {}
        """More fields of the pages of controllers without the key."""
        self.is_stuck = False
        """Whether the migration is not finished, although the key is false."""
        monkeypatch.setattr(FINALIZE, "read_page", self.page)
        monkeypatch.setattr(FINALIZE, "pause", lambda _: None)

    def is_restarted(self, number: int) -> bool:
        return (self.restarted / str(number)).exists()

    def page(self, address: str) -> dict[str, Any]:
        number = ADDRESSES[address]
        if number in self.silent:
            return {"problem": self.silent[number]}
        is_over = self.is_restarted(self.active) and not self.is_stuck
        state = FINISHED if is_over else MIGRATION
        found = {"nodeId": number, "voters": [*IDS], "offset": 10, "zkMigrationState": state}
        if self.is_restarted(number):
            return {**found, **self.without_key}
        is_active = number == self.active
        migration = {
            "isActive": is_active,
            "state": "KRAFT" if is_over else "MIGRATION_FINISHED",
            "driver": "DUAL_WRITE" if is_active else "INACTIVE",
            "blockers": [],
            "lagRecords": 0,
            "zookeeperBrokers": [],
        }
        return {**found, "migration": {**migration, **(self.changes if is_active else {})}}

    def run(self, *words: str, addresses: tuple[str, ...] = tuple(ADDRESSES)) -> Result:
        named = [word for path in self.files for word in ("--properties", str(path))]
        return CliRunner().invoke(main, ["migrate", "finalize", *addresses, *named, "--timeout", "0.2", *words])

    @property
    def restart(self) -> tuple[str, str]:
        """The option that restarts the controllers."""
        return "--restart", f"touch {self.restarted}/{{id}}"

    @property
    def keys(self) -> list[str]:
        return [parse_properties(path.read_text())[KEY] for path in self.files]


@pytest.fixture
def controllers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Controllers:
    return Controllers(tmp_path, monkeypatch)


def test_the_key_becomes_false_and_the_active_controller_restarts_last(controllers: Controllers) -> None:
    done = controllers.run(*controllers.restart, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"order": [3001, 3003, 3002], "finished": True}
    assert controllers.keys == ["false"] * 3
    kept = controllers.files[0].read_text()
    assert kept.startswith("node.id=3001\n# kept\nlog.dirs=/d\n")
    assert {stat.S_IMODE(path.stat().st_mode) for path in controllers.files} == {0o600}


def test_without_a_wait_the_order_is_printed(controllers: Controllers) -> None:
    done = controllers.run("--no-wait")
    assert done.exit_code == 0, done.output
    assert "controllers restart in this order: 3001, 3003, 3002" in done.output
    assert "not finished: restart the controllers" in done.output
    as_json = controllers.run("--no-wait", "--json")
    assert json.loads(as_json.stdout) == {"order": [3001, 3003, 3002], "finished": False}


def test_the_order_is_printed_before_the_wait_for_programs_too(controllers: Controllers) -> None:
    """With --json the command waited for restarts in an order that it had not told."""
    done = controllers.run("--json")
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "restart in this order: 3001, 3003, 3002" in done.stderr


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"zookeeperBrokers": [2, 5]}, "brokers 2, 5 use ZooKeeper"),
        ({"missingBrokers": [4]}, "brokers 4 have replicas, but are not registered"),
        ({"incompatibleBrokers": ["broker 7 is fenced"]}, "take no part in the migration: stop them (broker 7 is"),
        ({"lagRecords": 7}, "ZooKeeper is 7 records behind"),
        ({"blockers": ["no answer"]}, "the migration is blocked: no answer"),
        ({"driver": "SYNC_KRAFT_TO_ZK"}, "the driver is in SYNC_KRAFT_TO_ZK"),
        ({"state": "MIGRATION_READY", "driver": "WAIT_FOR_BROKERS"}, "the state is MIGRATION_READY"),
    ],
)
def test_a_migration_that_is_not_over_is_not_finished(
    controllers: Controllers, changes: dict[str, Any], words: str
) -> None:
    controllers.changes = changes
    done = controllers.run(*controllers.restart)
    assert done.exit_code == 3
    assert words in " ".join(done.output.split())
    assert controllers.keys == ["true"] * 3
    assert not [*controllers.restarted.iterdir()]


def test_all_controllers_must_answer_and_be_named(controllers: Controllers) -> None:
    missing = controllers.run(addresses=("c3001:9100", "c3002:9100"))
    assert (missing.exit_code, "the address of 3003 is missing" in missing.output) == (2, True)
    controllers.silent = {3003: "Connection refused"}
    silent = controllers.run()
    assert (silent.exit_code, "must answer: c3003:9100: Connection refused" in silent.output) == (4, True)
    assert controllers.keys == ["true"] * 3


def test_without_an_active_controller_nothing_is_changed(controllers: Controllers) -> None:
    controllers.active = 9
    done = controllers.run()
    assert (done.exit_code, "no controller is active" in done.output) == (3, True)
    assert controllers.keys == ["true"] * 3


@pytest.mark.parametrize("reason", ["", "brokers 1 still use ZooKeeper"])
def test_a_refusal_names_the_controller_without_the_key(controllers: Controllers, reason: str) -> None:
    controllers.is_stuck = True
    (controllers.restarted / "3002").touch()
    if reason:
        controllers.without_key["migrationNeedsKey"] = reason
    done = controllers.run()
    output = " ".join(done.output.split())
    assert (done.exit_code, f"set {KEY}=true on" in output, "3002 (c3002:9100)" in output) == (3, True, True)
    assert ("which is active" in output) is bool(reason)
    assert controllers.keys == ["true"] * 3


def test_after_all_restarts_the_end_of_the_migration_is_waited_for(controllers: Controllers) -> None:
    """Until the end was in the metadata log, the command told to set the key to true again."""
    for number in IDS:
        (controllers.restarted / str(number)).touch()
    controllers.is_stuck = True
    done = controllers.run("--json")
    assert done.exit_code == 1
    assert "c3001:9100: it still has the key, or has not finished the migration" in " ".join(done.output.split())
    controllers.is_stuck = False
    assert json.loads(controllers.run("--json").stdout) == {"order": [*IDS], "finished": True}


def test_a_cluster_that_never_migrates_is_not_finished(controllers: Controllers) -> None:
    for number in IDS:
        (controllers.restarted / str(number)).touch()
    controllers.is_stuck = True
    controllers.without_key["zkMigrationState"] = 0
    done = controllers.run()
    assert (done.exit_code, "no controller that migrates is active" in " ".join(done.output.split())) == (3, True)


@pytest.mark.parametrize("already", [(), (3001,), (3001, 3003), (3001, 3002, 3003)])
def test_a_second_run_goes_on_where_the_first_was_killed(controllers: Controllers, already: tuple[int, ...]) -> None:
    for path in controllers.files[:2]:
        path.write_text(path.read_text().replace("true", "false"))
    path.with_name(f"{path.name}.new").write_text("half of a fi")
    for number in already:
        (controllers.restarted / str(number)).touch()
    done = controllers.run(*controllers.restart, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["finished"]
    if len(already) < len(IDS):
        assert controllers.keys == ["false"] * 3
    again = controllers.run("--json")
    assert json.loads(again.stdout) == {"order": [*IDS], "finished": True}


def test_a_controller_that_missed_its_restart_is_restarted_by_the_next_run(controllers: Controllers) -> None:
    """The active controller has finished the migration already, so nothing needs to be checked any more."""
    for number in (3001, 3002):
        (controllers.restarted / str(number)).touch()
    done = controllers.run(*controllers.restart, "--json")
    assert json.loads(done.stdout) == {"order": [*IDS], "finished": True}
    assert controllers.is_restarted(3003)


def test_a_file_of_another_node_changes_no_file(controllers: Controllers) -> None:
    """The files before it were changed already."""
    controllers.files[2].write_text(f"node.id=7\n{KEY}=true\n")
    done = controllers.run(*controllers.restart)
    assert done.exit_code == 2
    assert f"{controllers.files[2]}: node.id is 7, not one of the controllers" in done.output
    assert controllers.keys == ["true"] * 3
    assert not [*controllers.restarted.iterdir()]


def test_a_key_that_cannot_be_changed_line_by_line_is_left_to_the_operator(controllers: Controllers) -> None:
    continued = f"node.id=3003\n{KEY}=\\\n  true\n"
    controllers.files[2].write_text(continued)
    done = controllers.run()
    assert done.exit_code == 2
    assert "set it to false by hand" in done.output
    assert controllers.files[2].read_text() == continued
    assert controllers.keys[:2] == ["true"] * 2


def test_nobody_else_may_read_the_new_file_at_any_time(
    controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the secrets of the old one."""
    modes = []
    chmod = Path.chmod

    def recorded(path: Path, mode: int) -> None:
        modes.append(stat.S_IMODE(path.stat().st_mode))
        chmod(path, mode)

    monkeypatch.setattr(Path, "chmod", recorded)
    assert controllers.run("--no-wait").exit_code == 0
    assert modes == [0o600] * 3


def test_a_restart_that_fails_ends_the_command(controllers: Controllers) -> None:
    done = controllers.run("--restart", "sh -c 'echo no such host {id} >&2; exit 5'")
    assert done.exit_code == 1
    assert "no such host 3001" in done.output
    assert not [*controllers.restarted.iterdir()]


def test_the_command_says_for_which_controller_it_waits(controllers: Controllers) -> None:
    done = controllers.run("--restart", "true")
    assert done.exit_code == 1
    assert f"(controller 3001 follows): c3001:9100: it still runs with {KEY}=true" in done.output
    controllers.is_stuck = True
    late = controllers.run(*controllers.restart)
    assert late.exit_code == 1
    assert "it still has the key, or has not finished the migration" in late.output
