"""The record of seeds that have run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import nights
from tools.mutants.cores import Broken, Simulator
from tools.nights import Night, Seeds


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(nights, "RECORDS", tmp_path)
    return tmp_path


def _night(name: str, **scenarios: Seeds) -> Night:
    return Night(name, "0" * 40, "2026-01-01T00:00:00Z", 60.0, scenarios)


def test_a_night_continues_where_the_last_one_ended(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, int, int]] = []
    monkeypatch.setattr(nights, "CHUNK_S", 20.0)

    def run_seeds(simulator: Simulator, _path: Path, first: int, count: int) -> None:
        ran.append((simulator.name, first, count))

    monkeypatch.setattr(nights, "run_seeds", run_seeds)
    clock = iter(range(100))
    monkeypatch.setattr(nights.time, "monotonic", lambda: next(clock))
    nights.run(["raft", "node"], 8.0, 1, records / "2026-01-01.json")
    first = list(ran)
    assert first[:2] == [("raft", nights.FIRST_SEED, 10), ("node", nights.FIRST_SEED, 2)]
    raft_seeds = [seed for name, seed, _ in first if name == "raft"]
    assert raft_seeds == sorted(set(raft_seeds))
    ran.clear()
    clock = iter(range(100))
    nights.run(["raft"], 2.0, 1, records / "2026-01-02.json")
    assert ran[0][1] == nights.FIRST_SEED + 10 * len(raft_seeds)


def test_a_broken_law_is_recorded_after_each_chunk(
    records: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Broken(nights.FIRST_SEED + 1, "lost: a record")
    monkeypatch.setattr(nights, "run_seeds", lambda *_: broken)
    clock = iter(range(100))
    monkeypatch.setattr(nights.time, "monotonic", lambda: next(clock))
    nights.run(["raft"], 2.0, 1, records / "2026-01-01.json")
    (night,) = nights.nights()
    assert night.scenarios["raft"].broken[0] == {"seed": nights.FIRST_SEED + 1, "law": "lost: a record"}
    assert "BROKEN seed" in capsys.readouterr().out


def test_the_page_adds_up_nights_of_the_same_code() -> None:
    first = _night("2026-01-01", raft=Seeds("aaa", 100, 50), node=Seeds("bbb", 7, 3, [{"seed": 8, "law": "lost: x"}]))
    second = _night("2026-01-02", raft=Seeds("aaa", 150, 1000))
    text = nights.page([first, second])
    assert "| raft | aaa | 1,050 | 0 |" in text
    assert "| node | bbb | 3 | 1 |" in text
    assert "- node seed 8: lost: x" in text
    assert text.index("2026-01-02") < text.index("2026-01-01")


def test_the_page_is_made_from_the_records_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nights, "RECORDS", nights.PAGE.parent / "nights")
    assert nights.main(["page", "--check"]) == 0
