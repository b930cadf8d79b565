"""The output of kafka-server-start: one line for each event, for any names and any destination."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraft_node.cli import server_start
from kraft_node.cli.common import run
from kraft_node.cli.server_start import formatter

GROUP = "Ünseen\n2026-01-01T00:00:00.000Z ERROR server forged\r\x1b[2J\udcff"


def line(*, as_json: bool) -> str:
    record = logging.LogRecord("kraft_node.broker", logging.INFO, "", 0, "Group %s: empty", (GROUP,), None)
    return formatter(as_json=as_json).format(record)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_log_line_is_one_printable_line(as_json: bool) -> None:
    text = line(as_json=as_json)
    assert text.isprintable()
    assert text.encode()


def test_control_characters_in_a_log_line_are_escaped() -> None:
    assert line(as_json=False).endswith(
        r" INFO  broker Group Ünseen\n2026-01-01T00:00:00.000Z ERROR server forged\r\x1b[2J\udcff: empty"
    )


def test_a_json_log_line_keeps_the_text() -> None:
    assert json.loads(line(as_json=True))["message"] == f"Group {GROUP}: empty"


class Left(BaseException):
    """Raised in place of the end of the process."""


class FullDisk:
    def flush(self) -> None:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("output", [None, FullDisk()], ids=["closed", "full"])
def test_a_failed_node_exits_even_if_its_log_cannot_be_written(output: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(code: int) -> None:
        raise Left(code)

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    monkeypatch.setattr(sys, "stdout", output)
    with pytest.raises(Left) as left:
        server_start._leave(1)
    assert left.value.args == (1,)


def test_a_program_without_standard_output_has_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as left:
        run(len, ["a", "b", "c"])
    assert left.value.code == 3


def test_a_refused_start_is_logged_as_a_json_object(tmp_path: Path) -> None:
    asked = [sys.executable, "-m", "kraft_node.cli.server_start", "--json", str(tmp_path / "nowhere")]
    done = subprocess.run(asked, capture_output=True, timeout=60, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stdout.splitlines() + done.stderr.splitlines()
    assert json.loads(line)["message"].endswith("nowhere: No such file or directory")
