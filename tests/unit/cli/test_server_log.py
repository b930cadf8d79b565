"""What kafka-server-start prints: one line for each fact, whatever groups are called, and wherever the output goes."""

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
def test_a_fact_is_one_line_that_any_terminal_takes(as_json: bool) -> None:
    text = line(as_json=as_json)
    assert text.isprintable()
    assert text.encode()


def test_what_can_be_printed_stays_and_the_rest_is_named() -> None:
    assert line(as_json=False).endswith(
        r" INFO  broker Group Ünseen\n2026-01-01T00:00:00.000Z ERROR server forged\r\x1b[2J\udcff: empty"
    )


def test_an_object_holds_the_text_as_it_is() -> None:
    assert json.loads(line(as_json=True))["message"] == f"Group {GROUP}: empty"


class Left(BaseException):
    """Raised in place of the end of the process."""


class FullDisk:
    def flush(self) -> None:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("output", [None, FullDisk()], ids=["closed", "full"])
def test_a_node_that_has_failed_ends_wherever_its_log_goes(output: object, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_refused_start_is_an_object_too(tmp_path: Path) -> None:
    asked = [sys.executable, "-m", "kraft_node.cli.server_start", "--json", str(tmp_path / "nowhere")]
    done = subprocess.run(asked, capture_output=True, timeout=60, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stdout.splitlines() + done.stderr.splitlines()
    assert json.loads(line)["message"].endswith("nowhere: No such file or directory")
