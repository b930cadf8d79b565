"""Many tables of one specification at once: routes, topics that are created later, a table that fails."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.cli.main import main
from kraft_pipeline.tables import fleet, runner
from kraft_pipeline.tables.engines.engine import Engine, InlineEngine, SparkEngine
from kraft_pipeline.tables.errors import FencedError
from kraft_pipeline.tables.specs import routes
from tests.compat.pipeline.test_pipeline_client import create, produced
from tests.compat.pipeline.test_pipeline_table import document, rows, send
from tests.compat.targets import Ours
from tests.spark import spark

__all__ = ["spark"]
WAIT_S = 240.0
pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("spark-kraftcluster")]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Ours]:
    target = Ours("kraftcluster", tmp_path / "server")
    yield target.start()
    target.kill()


def given(target: Ours, **more: Any) -> dict[str, Any]:
    found = document(target, "none", "none", "delta", commit={"maxDelay": "1ms"})
    del found["spec"]["topics"], found["spec"]["table"]["path"]
    found["spec"]["table"] |= more.pop("table", {})
    found["spec"] |= more
    return found


def until(found: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def offsets(path: Path) -> Counter[int]:
    """The offsets of a table; empty if the table does not exist yet."""
    if not list(path.glob("_delta_log/*.json")):
        return Counter()
    return Counter(row["offset"] for row in rows(path, "delta"))


def test_commands_apply_to_all_tables(cluster: Ours, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for topic, count in (("orders", 20), ("log-a", 5), ("log-b", 7)):
        create(cluster, topic)
        produced(cluster, topic, count)
    given_routes = [
        {"topics": {"names": ["orders"]}, "table": {"path": str(tmp_path / "orders")}},
        {"topics": {"pattern": "log-.*"}, "table": {"path": str(tmp_path / "logs" / "{topic}")}},
    ]
    file = tmp_path / "tables.yaml"
    file.write_text(json.dumps(given(cluster, routes=given_routes)))
    assert main(["table", "run", str(file), "--once"]) == 0
    reported = capsys.readouterr().out.splitlines()
    assert [line.partition(" rows")[0] for line in reported[:3]] == [
        "t/orders: batch 0: 20",
        "t/log-a: batch 0: 5",
        "t/log-b: batch 0: 7",
    ]
    assert reported[3] == "32 rows written"
    assert main(["table", "status", str(file), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["name"], one["rows"], one["lag"]) for one in found] == [
        ("t/orders", 20, 0),
        ("t/log-a", 5, 0),
        ("t/log-b", 7, 0),
    ]


@pytest.mark.parametrize("where", ["inline", "spark"])
def test_a_table_is_made_for_each_later_topic(
    request: pytest.FixtureRequest, cluster: Ours, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "LOOK_S", 1.0)
    engine: Engine = InlineEngine() if where == "inline" else SparkEngine(request.getfixturevalue("spark"))
    tables = routes.parse_all(given(cluster, topics={"pattern": "t-.*"}, table={"path": str(tmp_path / "{topic}")}))
    all_of_them = fleet.Fleet(tables, lambda table: runner.Runner(table, engine.another()))
    thread = threading.Thread(target=all_of_them.run)
    create(cluster, "t-one")
    produced(cluster, "t-one", 10)
    thread.start()
    try:
        until(lambda: offsets(tmp_path / "t-one").total() == 10)
        create(cluster, "t-two", 2)
        produced(cluster, "t-two", 30)
        produced(cluster, "t-one", 5, first=10)
        until(lambda: offsets(tmp_path / "t-two").total() == 30)
        until(lambda: offsets(tmp_path / "t-one") == Counter(range(15)))
    finally:
        all_of_them.stop()
        thread.join(WAIT_S)
    assert not thread.is_alive()
    assert all_of_them.failures == {}


def test_a_table_that_fails_ends_alone(cluster: Ours, tmp_path: Path) -> None:
    """Another process takes over one of two tables."""
    for topic in ("a", "b"):
        create(cluster, topic)
        send(cluster, topic, [b"1", b"2"])
    tables = routes.parse_all(given(cluster, topics={"names": ["a", "b"]}, table={"path": str(tmp_path / "{topic}")}))
    waited: list[str] = []
    both = fleet.Fleet(tables, lambda table: runner.Runner(table, InlineEngine()), wait=waited.append)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            both.run()
        except BaseException as e:
            raised.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until(lambda: all(offsets(tmp_path / t) for t in "ab"))
        runner.Runner(routes.of_topic(tables[0], "a"), InlineEngine()).run(once=True)
        until(lambda: both.failures)
        send(cluster, "b", [b"3"])
        until(lambda: len(rows(tmp_path / "b", "delta")) == 3)
    finally:
        both.stop()
        thread.join(WAIT_S)
    assert waited[0].startswith("t/a has ended, other tables continue: table ")
    assert [type(error) for error in raised] == [FencedError]
