"""Retention deletes records below a reader: after the plan of a batch, and in the midst of a backfill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.tables import maintenance, runner
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.engines.tasks import Job, Result
from kraft_pipeline.tables.errors import TaskError
from kraft_pipeline.tables.specs import table_spec
from kraft_protocol.client.errors import DataLossError
from kraft_protocol.client.fetch import Range
from tests.compat.pipeline.test_pipeline_client import create, produced
from tests.compat.pipeline.test_pipeline_table import document, rows
from tests.compat.targets import Target

CLIENT = "KafkaTable"
XDIST_GROUP = "spark"
pytestmark = pytest.mark.timeout(600)


def delete(target: Target, topic: str, before: int) -> None:
    """Delete the records below an offset, as retention does."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    (gone,) = admin.delete_records([TopicPartition(topic, 0, before)]).values()
    gone.result(60)


class Between(InlineEngine):
    """An engine that calls `then` between the plan of a batch and its tasks."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def run(self, job: Job, ranges: Sequence[Range]) -> list[Result]:
        self._then()
        return super().run(job, ranges)


def offsets(path: Path) -> Counter[int]:
    return Counter(row["offset"] for row in rows(path, "delta"))


@pytest.mark.parametrize("strict", [False, True])
def test_records_that_vanish_after_the_plan_are_reported(
    cluster: Target, name: str, tmp_path: Path, strict: bool
) -> None:
    create(cluster, name)
    produced(cluster, name, 60)
    parsed = table_spec.parse(document(cluster, name, tmp_path / "t", "delta", failOnDataLoss=strict))
    writer = runner.Runner(parsed, Between(lambda: delete(cluster, name, 25)))
    if strict:
        with pytest.raises((DataLossError, TaskError), match="offset 0 is gone, the log has 25 to 60 now"):
            writer.run(once=True)
        return
    assert writer.run(once=True) == 35
    assert offsets(tmp_path / "t") == Counter(range(25, 60))
    (loss,) = maintenance.status(parsed)["losses"]
    assert (loss["topic"], loss["partition"], loss["first"], loss["end"]) == (name, 0, 0, 25)
    assert loss["cause"] == "offset 0 is gone, the log has 25 to 60 now"
    assert maintenance.acknowledge(parsed) == 1
    assert maintenance.status(parsed).get("losses", []) == []


def test_a_backfill_continues_above_acknowledged_losses(cluster: Target, name: str, tmp_path: Path) -> None:
    create(cluster, name)
    produced(cluster, name, 60)
    given = document(cluster, name, tmp_path / "t", "delta", startingOffsets="latest", commit={"maxRows": 10})
    parsed = table_spec.parse(given)
    runner.Runner(parsed, InlineEngine()).run(once=True)
    reported: list[Any] = []

    def tell(progress: runner.Progress) -> None:
        reported.append(progress)
        filling.stop()

    filling = runner.Runner(parsed, InlineEngine(), report=tell, backfill=True)
    filling.run()
    assert offsets(tmp_path / "t") == Counter(range(10))
    delete(cluster, name, 33)
    with pytest.raises(DataLossError, match="offsets 10 to 32 may have been lost"):
        runner.Runner(parsed, InlineEngine(), backfill=True).run()
    assert [(loss["first"], loss["end"]) for loss in maintenance.status(parsed)["losses"]] == [(10, 33)]
    assert maintenance.acknowledge(parsed) == 1
    runner.Runner(parsed, InlineEngine(), backfill=True).run()
    assert offsets(tmp_path / "t") == Counter([*range(10), *range(33, 60)])
    assert runner.Runner(parsed, InlineEngine(), backfill=True).run() == 0
