"""Many tables in one process: a table that cannot begin does not end the others."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_pipeline.tables import fleet
from kraft_pipeline.tables.fleet import Fleet
from kraft_pipeline.tables.specs import routes, table_spec
from kraft_pipeline.tables.specs.table_spec import TableSpec
from tests.unit.pipeline.tables.test_routes import given

WRONG = ValueError("/data/bad is not a delta table")
AWAY = OSError("the store does not answer")


class Runs:
    """Stands in for runners: `starts` has what the start of each table raises, one after the other."""

    def __init__(self, starts: dict[str, list[Exception]]) -> None:
        self.starts, self.done = starts, list[str]()

    def writer(self, table: TableSpec) -> Any:
        name = table.path.rpartition("/")[2]
        if self.starts.get(name):
            raise self.starts[name].pop(0)
        return _Run(table, name, self.done)


class _Run:
    def __init__(self, spec: TableSpec, name: str, done: list[str]) -> None:
        self.spec, self._name, self._done = spec, name, done

    def run(self) -> int:
        self._done.append(self._name)
        return 1

    def stop(self) -> None:
        return


def specs(*names: str) -> list[TableSpec]:
    return routes.parse_all(
        given(*({"topics": {"names": [name]}, "table": {"path": f"/data/{name}"}} for name in names))
    )


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "LOOK_S", 0.0)
    monkeypatch.setattr(fleet, "STEP_S", 0.01)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("wrong", [WRONG, table_spec.SpecError("spec.table.path: no")])
def test_a_table_that_can_never_begin_does_not_end_the_others(wrong: Exception) -> None:
    """The exception of its constructor ended the whole process, again after each restart."""
    runs, printed = Runs({"bad": [wrong]}), list[str]()
    found = Fleet(specs("bad", "good"), runs.writer, wait=printed.append)
    with pytest.raises(type(wrong)):
        found.run()
    assert runs.done == ["good"]
    assert found.failures == {"/data/bad": wrong}
    assert printed == [f"shop/bad has ended, other tables continue: {wrong}"]


@pytest.mark.timeout(20)
def test_a_table_whose_store_is_away_begins_later() -> None:
    runs, printed = Runs({"away": [AWAY, AWAY]}), list[str]()
    assert Fleet(specs("away", "good"), runs.writer, wait=printed.append).run() == 2
    assert sorted(runs.done) == ["away", "good"]
    assert printed == [f"shop/away begins later: {AWAY}"] * 2


@pytest.mark.timeout(20)
def test_a_run_whose_tables_can_all_not_begin_ends() -> None:
    with pytest.raises(ValueError, match="is not a delta table"):
        Fleet(specs("bad"), Runs({"bad": [WRONG]}).writer).run()
