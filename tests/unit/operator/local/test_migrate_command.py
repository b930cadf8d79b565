"""`kraftcluster migrate status`: what controllers say of a migration, and the next step."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from click.testing import CliRunner

from kraft_cli.kraftcluster import main
from kraft_cli.migration.status import lines, summary

ACTIVE: dict[str, Any] = {
    "state": "MIGRATION_ACTIVE",
    "recordedState": 1,
    "isActive": True,
    "driver": "DUAL_WRITE",
    "blockers": [],
    "readRecords": 35,
    "lagRecords": 2,
    "zookeeperBrokers": [1, 2],
    "kraftBrokers": [3],
    "waitingBrokers": [],
}
STANDBY = {**ACTIVE, "isActive": False, "driver": "INACTIVE"}


@contextmanager
def served(page: dict[str, Any]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(page).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_active_controller_is_found_among_several() -> None:
    with (
        served({"nodeId": 3001, "migration": STANDBY}) as first,
        served({"nodeId": 3002, "migration": ACTIVE}) as second,
    ):
        done = CliRunner().invoke(main, ["migrate", "status", first, second])
        as_json = CliRunner().invoke(main, ["migrate", "status", first, second, "--json"])
    assert done.exit_code == 0, done.output
    assert "DUAL_WRITE on controller 3002" in done.output
    assert "restart the brokers 1, 2 without ZooKeeper" in done.output
    assert json.loads(as_json.output)["active"]["zookeeperBrokers"] == [1, 2]


def test_a_controller_that_does_not_migrate_is_named() -> None:
    with served({"nodeId": 3001, "migration": ACTIVE}) as first, served({"nodeId": 3002}) as second:
        done = CliRunner().invoke(main, ["migrate", "status", first, second])
    assert f"{second}: it does not migrate" in " ".join(done.output.split())


def test_an_active_controller_without_the_key_is_the_next_step() -> None:
    """A controller with the key had claimed ZooKeeper and died; nothing said why its brokers had no controller."""
    reason = "ZooKeeper's brokers have no controller"
    with (
        served({"nodeId": 3001, "migration": STANDBY}) as first,
        served({"nodeId": 3002, "migrationNeedsKey": reason}) as second,
    ):
        done = CliRunner().invoke(main, ["migrate", "status", first, second])
    output = " ".join(done.output.split())
    assert f"but it is active: {reason}" in output
    assert f"=true on controller 3002 ({second}), which is active, and restart it" in output


def test_without_an_answer_the_command_fails() -> None:
    done = CliRunner().invoke(main, ["migrate", "status", "127.0.0.1:1"])
    assert done.exit_code == 4
    assert "no controller answers: 127.0.0.1:1" in done.output


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": "MIGRATION_READY", "blockers": ["broker 1 is offline"]}, "remove what blocks"),
        ({"state": "MIGRATION_READY"}, "wait: the metadata"),
        ({"waitingBrokers": [2]}, "wait until all brokers"),
        ({"state": "MIGRATION_FINISHED", "zookeeperBrokers": []}, "migrate finalize"),
        ({"state": "MIGRATION_FINISHED", "missingBrokers": [4]}, "brokers 4 have replicas, but are not registered"),
        ({"state": "MIGRATION_FINISHED", "incompatibleBrokers": ["broker 7 x"]}, "stop them (broker 7 x)"),
        ({"state": "KRAFT"}, "nothing: remove"),
    ],
)
def test_the_next_step_follows_from_the_state(changes: dict[str, Any], words: str) -> None:
    assert words in summary({"h:1": {"nodeId": 1, "migration": {**ACTIVE, **changes}}})["next"]


def test_brokers_that_take_no_part_are_listed() -> None:
    """The guide says that `migrate status` lists them; it showed them with --json only."""
    shown = lines(
        summary({"h:1": {"nodeId": 1, "migration": {**ACTIVE, "incompatibleBrokers": ["broker 7 is fenced"]}}})
    )
    assert "ignored      broker 7 is fenced" in shown


def test_controllers_that_have_just_restarted_without_the_key_end_the_migration() -> None:
    """The advice was to set the key to true again."""
    pages = {"h:1": {"nodeId": 1, "zkMigrationState": 1}, "h:2": {"nodeId": 2, "zkMigrationState": 3}}
    assert "wait: the migration is finished once" in summary(pages)["next"]
    needs_key = {**pages, "h:3": {"nodeId": 3, "zkMigrationState": 1, "migrationNeedsKey": "brokers 1 still use it"}}
    assert "=true on controller 3" in summary(needs_key)["next"]
    silent = {**pages, "h:3": {"problem": "Connection refused"}}
    assert "once all controllers answer" in summary(silent)["next"]


def test_standbys_alone_do_not_know_the_next_step() -> None:
    assert "name the addresses of all controllers" in summary({"h:1": {"nodeId": 1, "migration": STANDBY}})["next"]


def test_a_silent_controller_may_be_the_active_one() -> None:
    silent, other = {"problem": "Connection refused"}, {"nodeId": 2}
    assert "once all controllers answer" in summary({"h:1": silent, "h:2": other})["next"]
    assert "=true on the controllers" in summary({"h:2": other})["next"]


def test_an_address_without_a_port_number_is_a_problem_of_that_address() -> None:
    done = CliRunner().invoke(main, ["migrate", "status", "localhost:port"])
    assert (done.exit_code, type(done.exception)) == (4, SystemExit)
    assert "localhost:port" in done.output
