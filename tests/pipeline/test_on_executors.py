"""Archives, their DataFrames and scrubs on executors that are processes of their own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.compat.pipeline.test_pipeline_client import create
from tests.compat.targets import Ours
from tests.peer import missing
from tests.sparkrun import SparkRun

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Ours]:
    if shutil.which("java") is None:
        missing("Java", "Spark needs version 17 or later")
    target = Ours("kraftcluster", tmp_path / "server")
    yield target.start()
    target.kill()


def test_archive_and_scrub_on_executors(cluster: Ours, tmp_path: Path) -> None:
    """Executors see the driver's classes only by their import, and its files only by their path."""
    create(cluster, "t", 3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(1000):
        producer.produce("t", b"%d" % number, partition=number % 3)
    assert producer.flush(60) == 0
    file = tmp_path / "given.json"
    given = {"log": str(cluster.data), "table": str(tmp_path / "table"), "bootstrap": cluster.bootstrap, "topic": "t"}
    file.write_text(json.dumps(given))
    with SparkRun(file, program=("tests.pipeline.on_executors",)) as ran:
        assert ran.wait(600) == 0, "\n".join(ran.lines[-60:])
    found = json.loads(next(line for line in ran.lines if line.startswith("RESULT")).removeprefix("RESULT"))
    first, again = found["done"]
    assert found["state"]["changes"] == first["rows"] + again["rows"]
    assert found["state"]["topics"]["t"] == 3
    assert [(one["totals"]["replicas"], one["findings"]) for one in found["scrubs"]] == [(3, []), (3, [])]
    assert found["scrubs"][0]["totals"]["batches"] == found["scrubs"][1]["totals"]["batches"] > 0
