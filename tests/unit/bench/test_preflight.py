"""A machine on which steps would fail is reported before the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.runs import preflight
from bench.runs.registry import scenarios_by_name


def test_missing_programs_and_space_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(preflight, "DISK_GIB", 1 << 40)
    found = preflight.problems(tmp_path)
    assert "jcmd is not in PATH" in found
    assert any("--folder" in text for text in found)


def test_a_server_that_is_missing_is_named_as_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "etcd: etcd is not in PATH" in preflight.skipped(list(scenarios_by_name().values()))
