"""A writer dies between a batch's dead letters and its rows; the next writer repeats the batch beside its record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.sources.positions import Loss, Position
from kraft_pipeline.tables.engines.plans import Live, Plan, Sizes
from kraft_pipeline.tables.losses import Losses
from kraft_pipeline.tables.runner import Progress, Runner
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.stores.committer import State
from kraft_pipeline.tables.stores.opening import open_table, options_of
from kraft_pipeline.tables.stores.storage import open_storage
from kraft_protocol.client.errors import DataLossError
from kraft_protocol.records.batch import build_batch
from tests.compat.pipeline.test_pipeline_table import rows
from tests.documents import table_document
from tests.feed import Fed
from tests.unit.pipeline.tables.test_table_backfills import KEY, NEW, OLD, Brokers

KINDS = ["delta", "iceberg", "parquet"]
BEFORE = [b'{"n": 0}', b'{"n": "x"}', b'{"n": 2}', b"dead", b'{"n": 4}']


class Dies(Runner):
    """Ends when the dead letters are committed."""

    def _commit(self, *_: Any) -> Any:
        raise KeyboardInterrupt


def given(path: Path, kind: str, **more: Any) -> table_spec.TableSpec:
    value = {"format": "json", "schema": {"n": "long"}}
    return table_spec.parse(table_document(name="t", table={"path": str(path), "format": kind}, value=value, **more))


def batch(which: type[Runner], wanted: table_spec.TableSpec, values: list[bytes], *, gone: int = 0) -> Progress:
    """One attempt of the first batch, offsets 0 to 4; the log no longer has the first `gone` records."""
    log = build_batch([(b"k", value) for value in values[gone:]], base_offset=gone)
    reported: list[Progress] = []
    runner: Any = which(wanted, Fed({0: log}), report=reported.append)
    runner.begin()
    states = [open_table(wanted, dead_letters=dead).state() for dead in (False, True)]
    end = Position({("t", 0): len(values)}, "c", {"t": "00" * 16}, {("t", 0): 0})
    again = states[1].batch > states[0].batch
    runner.batch(None, Plan(*states, {("t", 0): 0}, end, 0, again=again, full=True))
    return reported[0]


def died(wanted: table_spec.TableSpec) -> None:
    with pytest.raises(KeyboardInterrupt):
        batch(Dies, wanted, BEFORE)
    states = [open_table(wanted, dead_letters=dead).state().batch for dead in (False, True)]
    assert states == [-1, 0]


def offsets(wanted: table_spec.TableSpec) -> tuple[list[int], list[int]]:
    """The offsets of the rows and of the dead letters."""
    found = sorted(row["_offset"] for row in rows(wanted.path, wanted.format))
    return found, sorted(row["offset"] for row in rows(wanted.dead_letter_path, wanted.format))


@pytest.mark.parametrize("kind", KINDS)
def test_a_repeated_batch_writes_its_dead_letters_once(tmp_path: Path, kind: str) -> None:
    wanted = given(tmp_path / "t", kind)
    died(wanted)
    done = batch(Runner, wanted, BEFORE)
    assert (done.rows, done.dead) == (3, 2)
    assert offsets(wanted) == ([0, 2, 4], [1, 3])


@pytest.mark.parametrize("kind", KINDS)
def test_a_repeated_batch_keeps_dead_letters_under_a_new_specification(tmp_path: Path, kind: str) -> None:
    """Before, the record became a row as well."""
    died(given(tmp_path / "t", kind))
    # A registry may know a schema now, or a parser may be repaired: the same bytes become a value.
    wanted = given(tmp_path / "t", kind)
    done = batch(Runner, wanted, [b'{"n": %d}' % n for n in range(5)])
    assert (done.rows, done.dead) == (3, 2)
    assert offsets(wanted) == ([0, 2, 4], [1, 3])


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_refused_at_a_repeat_becomes_a_dead_letter(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, the record was lost: neither a row nor a dead letter. A second crash in between changes nothing."""
    died(given(tmp_path / "t", kind))
    wanted = given(tmp_path / "t", kind)
    now = [b"none", *BEFORE[1:]]
    with pytest.raises(KeyboardInterrupt):
        batch(Dies, wanted, now)
    done = batch(Runner, wanted, now)
    assert (done.rows, done.dead) == (2, 3)
    assert offsets(wanted) == ([2, 4], [0, 1, 3])
    assert (
        "t-0: the first attempt of batch 0 made 3 rows and 2 dead letters of them, this one makes 2 rows and 3 dead"
        in caplog.text
    )
    assert {row["batch"] for row in rows(wanted.dead_letter_path, kind)} == {0}


@pytest.mark.parametrize("kind", KINDS)
def test_a_repeated_batch_with_fewer_records_names_both_counts(tmp_path: Path, kind: str) -> None:
    """Before, the rows were missing without an error."""
    wanted = given(tmp_path / "t", kind)
    died(wanted)
    both = "batch 0 made 3 rows and 2 dead letters of them, this one makes 2 rows and 2 dead letters"
    for _ in range(2):
        with pytest.raises(DataLossError, match=both):
            batch(Runner, wanted, BEFORE, gone=1)
    assert open_table(wanted).state().batch == -1
    losses = Losses(open_storage(wanted.path, wanted.storage), wanted.app_id)
    assert [(loss["topic"], loss["partition"]) for loss in losses.open()] == [("t", 0)]
    assert losses.acknowledge() == 1
    assert batch(Runner, wanted, BEFORE, gone=1).rows == 2
    assert offsets(wanted) == ([2, 4], [1, 3])


def test_with_fail_on_data_loss_off_the_difference_is_recorded(tmp_path: Path) -> None:
    wanted = given(tmp_path / "t", "parquet", failOnDataLoss=False)
    died(wanted)
    assert batch(Runner, wanted, BEFORE, gone=1).rows == 2
    assert len(Losses(open_storage(wanted.path, wanted.storage), wanted.app_id).open()) == 1


def test_an_acknowledgement_covers_the_offsets_that_it_names(tmp_path: Path) -> None:
    """Before, records that retention deleted between an acknowledgement and the next run were skipped silently."""
    losses = Losses(open_storage(str(tmp_path), {}), "a")
    loss = Loss("t", 0, 10, 50, "offset 10 is gone", "10")
    assert not losses.found(loss)
    assert losses.acknowledge() == 1
    assert losses.found(loss)
    grown = loss._replace(end=80)
    assert not losses.found(grown)
    assert not losses.found(grown)
    assert [(one["first"], one["end"]) for one in losses.open()] == [(50, 80)]
    assert losses.acknowledge() == 1
    assert losses.found(grown)
    assert losses.found(loss)
    # A loss that grows before its acknowledgement is shown whole.
    assert not losses.found(loss._replace(end=90))
    assert not losses.found(loss._replace(end=95))
    assert [(one["first"], one["end"]) for one in losses.open()] == [(80, 90), (90, 95)]


@pytest.mark.parametrize(("topic", "strict"), [(NEW, True), (NEW, False), ("", False)])
def test_a_repeated_batch_of_a_former_topic_is_a_loss(tmp_path: Path, topic: str, strict: bool) -> None:
    """The topic was deleted, or made anew, before the next start. Before, each run failed at the first fetch, and no
    loss was there to acknowledge.
    """
    wanted = given(tmp_path / "t", "delta", failOnDataLoss=strict)
    losses = Losses(open_storage(wanted.path, wanted.storage), wanted.app_id)
    options = options_of(wanted)
    live, brokers = Live(wanted, options, Sizes(wanted, options), losses, once=True), Brokers(topic)
    begun, epochs = {KEY: 0}, {KEY: 3}
    state = State(4, Position({KEY: 50}, "c", {"t": OLD}, begun, epochs=epochs), 7)
    dead = State(5, Position({KEY: 80}, "c", {"t": OLD}, begun, epochs=epochs, rows={KEY: 20}), 7)

    def planned() -> Plan | None:
        cluster: Any = brokers
        return live.plan(cluster, state, dead)

    if strict:
        with pytest.raises(DataLossError, match=r"t-0: from offset 50 on .* the topic has been deleted and made again"):
            planned()
    else:
        assert planned() is not None
    assert losses.acknowledge() == 1
    plan = planned()
    assert plan is not None
    assert (plan.again, plan.start, plan.end.offsets, plan.cut) == (True, {KEY: 80}, {KEY: 80}, {KEY})
