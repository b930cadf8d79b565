"""A panic of delta-rs is no `Exception`: it must be reported, and end what it struck only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kraft_pipeline.tables import fleet, maintenance
from kraft_pipeline.tables.engines import engine
from kraft_pipeline.tables.errors import Failure, PanicError
from kraft_pipeline.tables.fleet import Fleet
from kraft_pipeline.tables.runner import Runner
from kraft_pipeline.tables.specs import table_spec
from tests.unit.pipeline.tables.test_fleets import specs

UNCOUNTABLE_HOURS = 1 << 62
TEXT = "TimeDelta::hours out of bounds"


@pytest.fixture
def panic(tmp_path: Path) -> Any:
    """A function of any arguments that makes delta-rs panic."""
    write_deltalake(tmp_path, pa.table({"a": [1]}))

    def call(*_: Any, **__: Any) -> Any:
        return DeltaTable(tmp_path).vacuum(retention_hours=UNCOUNTABLE_HOURS, enforce_retention_duration=False)

    with pytest.raises(BaseException, match=TEXT) as found:
        call()
    assert not isinstance(found.value, Exception)
    return call


def test_a_panic_in_maintenance_is_counted_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, panic: Any
) -> None:
    """It ended the thread: no pass was counted as failed, and the status kept the error of the pass before."""
    document = {
        "apiVersion": table_spec.API_VERSION,
        "kind": "KafkaTable",
        "metadata": {"name": "t"},
        "spec": {"bootstrapServers": "a:1", "topics": {"names": ["t"]}, "table": {"path": str(tmp_path / "t")}},
    }
    monkeypatch.setattr(maintenance, "care", panic)
    waited: list[str] = []
    runner = Runner(table_spec.parse(document), engine.InlineEngine(), wait=waited.append)
    runner._caretaker._pass()
    assert (runner.care_failures, runner.care_error) == (1, f"pyo3_runtime panicked: {TEXT}")
    assert waited == [f"maintenance failed, batches continue: pyo3_runtime panicked: {TEXT}"]


@pytest.mark.timeout(20)
def test_a_table_that_panics_is_reported_and_the_others_continue(monkeypatch: pytest.MonkeyPatch, panic: Any) -> None:
    """Its thread ended without a word, so the table stood still while its process looked healthy."""
    monkeypatch.setattr(fleet, "LOOK_S", 0.0)
    monkeypatch.setattr(fleet, "STEP_S", 0.01)
    monkeypatch.setattr(Runner, "begin", panic)
    monkeypatch.setattr("kraft_pipeline.tables.runner.Cluster.__enter__", lambda self: self)
    printed: list[str] = []
    ran = Fleet(specs("bad"), lambda spec: Runner(spec, engine.InlineEngine()), wait=printed.append)
    with pytest.raises(PanicError, match=TEXT):
        ran.run()
    assert printed == [f"shop/bad has ended, other tables continue: pyo3_runtime panicked: {TEXT}"]


@pytest.mark.timeout(20)
def test_a_table_that_panics_as_it_begins_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch, panic: Any) -> None:
    monkeypatch.setattr(fleet, "LOOK_S", 0.0)
    with pytest.raises(PanicError, match=TEXT):
        Fleet(specs("bad"), panic).run()
    with pytest.raises(PanicError, match=TEXT):
        Fleet(specs("bad"), panic).run(once=True)


def test_a_panic_of_a_task_is_its_failure(panic: Any) -> None:
    found = engine._outcome(panic, None)
    assert isinstance(found, Failure)
    assert (found.code, found.retriable, found.message) == ("PanicError", False, f"pyo3_runtime panicked: {TEXT}")
