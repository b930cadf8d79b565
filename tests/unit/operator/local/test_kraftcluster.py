"""The program `kraftcluster` without running nodes: its requests, its output, its end."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kraft_cli.kraftcluster import main
from kraft_cli.screen import Lines, WhileRead
from kraft_local.folder import Folder, Memory
from kraft_local.processes import Lock
from kraft_local.resource_file import parsed, values
from kraft_operator.plan.model.record import Node, Record
from tests.unit.operator.sample import ROOT

SAMPLE = (ROOT / "deploy/samples/kraftcluster.yaml").read_text()
RECORDED = Path(__file__).parents[1] / "recorded" / "kraftcluster.json"


class Stage:
    def __init__(self, root: Path) -> None:
        self.data = root / "data"
        self.file = root / "kraftcluster.yaml"
        self.file.write_text(SAMPLE)
        self.folder = Folder(self.data / "sample")

    def run(self, command: str, *words: str) -> Result:
        return CliRunner().invoke(main, [command, "--data", str(self.data), *words], env={"COLUMNS": "200"})

    def exists(self) -> None:
        """A cluster that was created and does not run."""
        self.folder.remember(Memory(accepted=values(parsed(SAMPLE, "f").spec), uid="u", generation=1))

    def reported(self) -> None:
        """The report of a running supervisor: this process."""
        assert self.folder.lock.take()
        resource = json.loads(RECORDED.read_text())
        resource["metadata"]["name"] = "sample"
        local = {"bootstrap": "localhost:9092", "file": str(self.file), "folder": "", "trouble": ""}
        resource["local"] = {**local, "ports": {"101/plain": 9092}, "pids": {"101": os.getpid()}, "driver": os.getpid()}
        self.folder.write_status(resource)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.folder.lock.release()


@pytest.mark.parametrize("command", ["status", "plan", "top", "approve", "roll", "pause", "down"])
def test_commands_without_a_cluster_exit_with_4(stage: Stage, command: str) -> None:
    done = stage.run(command)
    assert done.exit_code == 4
    assert f"{stage.data} has no cluster" in done.output


@pytest.mark.parametrize("command", ["status", "plan", "top", "approve", "roll", "pause", "down"])
def test_every_command_takes_the_file_to_find_its_cluster(stage: Stage, command: str) -> None:
    for word in ("-f", "--file"):
        done = CliRunner().invoke(main, [command, word, str(stage.file)])
        assert done.exit_code == 4
        assert f"cluster sample does not exist in {stage.file.parent / '.kraft'}" in done.output


@pytest.mark.parametrize("name", ["../../elsewhere", "Sample", "5", "a/b", ""])
def test_an_invalid_name_makes_no_folder(stage: Stage, name: str) -> None:
    stage.file.write_text(SAMPLE.replace("name: sample", f"name: {name}"))
    for command in ("up", "down", "preview"):
        done = stage.run(command, "-f", str(stage.file))
        assert done.exit_code == 2
        assert f"{stage.file}: " in done.output, done.output
    assert sorted(path.name for path in stage.file.parent.rglob("*")) == ["kraftcluster.yaml"]


@pytest.mark.parametrize("more", [(), ("--detach",)])
def test_a_data_path_that_is_no_folder_is_refused(stage: Stage, more: tuple[str, ...]) -> None:
    stage.data.write_text("a file")
    done = stage.run("up", "-f", str(stage.file), *more)
    assert done.exit_code == 2
    assert f"Error: {stage.folder.root}: Not a directory: name another folder with --data" in done.output


def test_with_several_clusters_a_name_is_required(stage: Stage) -> None:
    stage.exists()
    Folder(stage.data / "other").remember(Memory())
    done = stage.run("status")
    assert done.exit_code == 2
    assert "2 clusters (other, sample): name one with --cluster" in done.output
    assert stage.run("pause", "nope").exit_code == 4
    assert stage.run("pause", "sample").exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "kraftcluster.yaml: "),
        ("kind: Pod", "one KRaftCluster is expected, 0 found"),
        (
            SAMPLE.replace("port: 9092", "port: 80"),
            "spec.listeners[0].port: 80 is not valid: at least 1024",
        ),
        (SAMPLE.replace("name: sample", "names: sample"), "metadata.name"),
    ],
)
def test_a_bad_file_exits_with_2_and_names_the_place(stage: Stage, text: str, said: str) -> None:
    stage.file.write_text(text)
    done = stage.run("up", "-f", str(stage.file))
    assert done.exit_code == 2, done.output
    assert said in done.output
    assert not stage.folder.exists()
    done = stage.run("up", "-f", str(stage.file.with_name("none.yaml")))
    assert done.exit_code == 2
    assert "none.yaml: No such file or directory" in done.output


def test_a_refused_change_exits_with_3(stage: Stage) -> None:
    stage.exists()
    stage.file.write_text(SAMPLE.replace("firstNodeId: 1\n", "firstNodeId: 11\n").replace("101", "201"))
    for command in ("up", "preview"):
        done = stage.run(command, "-f", str(stage.file))
        assert done.exit_code == 3, done.output
        assert "add a pool with another firstNodeId instead" in done.output


def test_assigned_ports_are_kept(stage: Stage) -> None:
    stage.exists()
    memory = stage.folder.memory()
    memory.ports = {"101/plain": 9092}
    stage.folder.remember(memory)
    done = stage.run("up", "-f", str(stage.file), "--port", "19092")
    assert done.exit_code == 3
    assert "ports cannot change: this cluster's begin at 9092" in done.output


def test_a_second_supervisor_of_a_cluster_is_refused(stage: Stage) -> None:
    stage.reported()
    done = stage.run("up", "-f", str(stage.file))
    assert done.exit_code == 4
    assert f"sample is already driven by process {os.getpid()}" in done.output
    other = Lock(stage.folder.lock.path)
    assert not other.take()


def test_up_in_the_background_reports_a_running_cluster(stage: Stage) -> None:
    stage.exists()
    stage.reported()
    resource = json.loads((stage.folder.root / "status.json").read_text())
    next(one for one in resource["status"]["conditions"] if one["type"] == "Ready")["status"] = "True"
    stage.folder.write_status(resource)
    again = stage.run("up", "--detach", "-f", str(stage.file))
    assert again.exit_code == 0, again.output
    assert "bootstrap servers: localhost:9092" in again.output
    other = stage.file.with_name("other.yaml")
    other.write_text(SAMPLE)
    refused = stage.run("up", "--detach", "-f", str(other))
    assert refused.exit_code == 3
    assert f"sample runs already, and follows {stage.file}" in refused.output


def test_stopped_nodes_are_not_shown_as_starting(stage: Stage) -> None:
    record = Record("id", (Node(1, "controllers", True, False, formatted=True),), voters=(1,))
    stage.folder.remember(Memory(record, accepted=values(parsed(SAMPLE, "f").spec), uid="u", generation=1))
    done = stage.run("status")
    assert done.exit_code == 1
    assert "no supervisor runs: start `kraftcluster up`" in done.output
    assert "Stopped" in done.output
    assert not {"Starting", "Progressing", "Step"} & set(done.output.split())


def test_requests_without_a_supervisor_are_refused(stage: Stage) -> None:
    stage.exists()
    for words in (["roll"], ["replace", "2"], ["approve"]):
        done = stage.run(*words)
        assert done.exit_code == 4, words
        assert "sample does not run: `kraftcluster up` first" in done.output
    assert stage.folder.requests().annotations == {}


def test_requests_are_left_for_the_supervisor(stage: Stage) -> None:
    stage.exists()
    stage.reported()
    assert stage.run("roll", "101", "--no-wait").exit_code == 0
    assert stage.run("replace", "2", "--new-id", "--no-wait").exit_code == 0
    assert stage.run("skip", "3").exit_code == 0
    assert stage.run("hibernate").exit_code == 0
    asked = stage.folder.requests()
    assert asked.annotations["kraftcluster.io/roll"].startswith("101=")
    assert asked.annotations["kraftcluster.io/skip"] == "3"
    (item,) = asked.replacements
    assert (item["node"], item["by"], item["accept"]) == (2, "NewId", [])
    assert asked.hibernated
    assert stage.run("wake").exit_code == 0
    assert not stage.folder.requests().hibernated


def test_a_request_cannot_undo_a_value_of_the_file(stage: Stage) -> None:
    spec = values(parsed(SAMPLE + "  paused: true\n", "f").spec)
    stage.folder.remember(Memory(accepted=spec))
    done = stage.run("resume")
    assert done.exit_code == 2
    assert "the file of sample has spec.paused: true; change it there" in done.output


def test_status_has_addresses_and_processes(stage: Stage) -> None:
    stage.reported()
    done = stage.run("status", "--file", str(stage.file))
    assert done.exit_code == 4, "it was never remembered"
    stage.exists()
    done = stage.run("status", "--file", str(stage.file))
    assert done.exit_code == 0
    assert "bootstrap localhost:9092" in done.output
    rows = [line.split() for line in done.output.splitlines()]
    assert any(row[:6] == ["101", "Ready", "0", "brokers", "localhost:9092", str(os.getpid())] for row in rows)


def test_logs_show_the_last_lines_of_a_node(stage: Stage) -> None:
    stage.exists()
    stage.reported()
    done = stage.run("logs", "101")
    assert done.exit_code == 4
    assert "node 101 has no log yet" in done.output
    stage.folder.log(101).parent.mkdir(parents=True)
    stage.folder.log(101).write_text("one\ntwo\nthree\n")
    assert stage.run("logs", "101", "--tail", "2").output == "two\nthree\n"
    assert stage.run("logs", "7").exit_code == 2


def test_down_succeeds_on_a_stopped_cluster_and_wipes_on_request(stage: Stage) -> None:
    stage.exists()
    assert stage.run("down").exit_code == 0
    assert stage.folder.exists()
    assert stage.run("down", "--wipe").exit_code == 0
    assert not stage.folder.root.exists()


def test_down_waits_for_a_supervisor_that_is_ending(stage: Stage) -> None:
    """Between the supervisor's last report and its end, `down` claimed that another process drove the cluster."""
    stage.exists()
    with stage.folder.lock.path.open("w") as left:
        fcntl.flock(left, fcntl.LOCK_EX)
        end = threading.Timer(0.3, lambda: fcntl.flock(left, fcntl.LOCK_UN))
        end.start()
        assert stage.run("down").exit_code == 0
        end.join()


def test_status_without_a_supervisor_is_read_from_the_processes(stage: Stage) -> None:
    stage.exists()
    done = stage.run("status", "-o", "json")
    assert done.exit_code == 1, "nothing runs"
    found: dict[str, Any] = json.loads(done.output)
    assert found["local"]["pids"] == {}
    assert found["status"]["plan"][0] == "Remember: nodes are assigned"


def test_the_shell_completes_words() -> None:
    done = CliRunner().invoke(main, ["completion", "bash"])
    assert "_KRAFTCLUSTER_COMPLETE" in done.output


def test_a_broken_pipe_stops_the_cluster_cleanly() -> None:
    """The pass in which the pipe broke ended the program: a node that it had just stopped stayed down."""
    shown: list[str] = []

    class Broken(Lines):
        def event(self, text: str) -> None:
            if text == "b":
                raise BrokenPipeError
            shown.append(text)

    lost: list[bool] = []
    heard = WhileRead(Broken(""), lambda: lost.append(True))
    for text in "abac":
        heard.event(text)
    heard.status({})
    heard.close()
    assert (shown, lost) == (["a"], [True])


def test_a_user_that_no_listener_authenticates_is_refused_at_once(stage: Stage) -> None:
    """Without TLS, `user add` waited 600 s for a user that could never become ready, and kept the request."""
    plain = (ROOT / "deploy/samples/plaintext.yaml").read_text()
    spec = values(parsed(plain, "f").spec)
    stage.folder.remember(Memory(accepted=spec, uid="u", generation=1))
    stage.reported()
    done = CliRunner().invoke(main, ["user", "add", "shop", "--produce", "orders", "--data", str(stage.data)])
    assert done.exit_code == 3
    assert "no listener of KRaftCluster sample authenticates clients by ScramSha512" in done.output
    assert stage.folder.requests().users == {}
