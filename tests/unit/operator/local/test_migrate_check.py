"""`kraftcluster migrate check`: its findings, its next step, and failures of the program that reads ZooKeeper."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kraft_cli.kraftcluster import main

SURVEY: Any = importlib.import_module("kraft_cli.migration.survey")
BLOCKER = {"kind": "blocker", "subject": "broker 2", "reason": "it is offline", "fix": "start it"}
PREPARATION = {"kind": "preparation", "subject": "broker 1", "reason": "the key is not true", "fix": "run start"}
WARNING = {"kind": "warning", "subject": "topic t", "reason": "it is being deleted", "fix": "wait"}
FOUND: dict[str, Any] = {
    "clusterId": "abc",
    "controller": {"id": 1, "isKRaft": False},
    "counts": {"topics": 3, "scramCredentials": 0},
    "brokers": [
        {
            "id": 1,
            "endpoints": ["PLAINTEXT://b1:9092"],
            "isLive": True,
            "configs": {"inter.broker.protocol.version": "3.9-IV0"},
        },
        {"id": 2, "endpoints": [], "isLive": False, "configs": {}},
    ],
    "findings": [],
}


class Stage:
    """The command with an answer of the program that a test gives."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found = dict(FOUND)
        self.failure: tuple[int, str] | None = None
        self.commands: list[list[str]] = []
        monkeypatch.setattr(SURVEY.subprocess, "run", self._program)

    def _program(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        self.commands.append(command)
        if self.failure is not None:
            return subprocess.CompletedProcess(command, self.failure[0], b"", self.failure[1].encode())
        return subprocess.CompletedProcess(command, 0, json.dumps(self.found).encode(), b"")

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["migrate", "check", "--zookeeper", "z:2181", *words])


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


@pytest.mark.parametrize(
    ("findings", "is_kraft", "code", "words"),
    [
        ([BLOCKER, PREPARATION], False, 1, "remove what blocks the migration"),
        ([PREPARATION, WARNING], False, 0, "kraftcluster migrate start --zookeeper z:2181 --controller"),
        ([WARNING], False, 0, "start the controllers"),
        ([PREPARATION], True, 0, "kraftcluster migrate status"),
    ],
)
def test_the_next_step_follows_from_the_findings(
    stage: Stage, findings: list[dict[str, str]], is_kraft: bool, code: int, words: str
) -> None:
    stage.found |= {"findings": findings, "controller": {"id": 1, "isKRaft": is_kraft}}
    done = stage.run("--json")
    assert done.exit_code == code, done.output
    found = json.loads(done.output)
    assert words in found["next"]
    assert found["findings"] == findings


def test_findings_are_shown_with_what_to_do(stage: Stage) -> None:
    stage.found |= {"findings": [BLOCKER], "controller": None}
    done = stage.run()
    assert done.exit_code == 1
    words = " ".join(done.output.split())
    assert "controller none" in words
    assert "3 topics" in words
    assert "0 scram" not in words
    assert "blocker broker 2 it is offline start it" in words


def test_files_are_passed_to_the_program(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("")
    stage.run("--command-config", str(file), "--zk-tls-config-file", str(file), "--json")
    (command,) = stage.commands
    assert command[2:] == [
        *("kraft_node.cli.migration_survey", "look", "--zookeeper", "z:2181"),
        *("--zk-tls-config-file", str(file), "--command-config", str(file)),
    ]


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        ((1, "ZooKeeper z:2181: no server answers\n"), 4, "ZooKeeper z:2181: no server answers"),
        ((1, "Traceback (most recent call last):\n  File x\nKeyError: 'a'\n"), 1, "KeyError: 'a'"),
        ((-9, ""), 1, "ended with -9"),
    ],
)
def test_a_failure_of_the_program_is_reported(stage: Stage, failure: tuple[int, str], code: int, words: str) -> None:
    stage.failure = failure
    done = stage.run("--json")
    assert (done.exit_code, type(done.exception)) == (code, SystemExit)
    assert words in done.output


def test_a_missing_file_is_named(stage: Stage) -> None:
    done = stage.run("--command-config", "/missing.properties")
    assert (done.exit_code, stage.commands) == (2, [])
    assert "/missing.properties" in done.output
