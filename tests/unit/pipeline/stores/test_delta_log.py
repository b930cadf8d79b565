"""What a Delta table's log says about batches, while other writers commit, and after the log was changed by others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables.engines.feeds import Asking, Feed
from kraft_pipeline.tables.engines.plans import Sizes
from kraft_pipeline.tables.errors import ConflictError, FencedError
from kraft_pipeline.tables.maintenance import acknowledge
from kraft_pipeline.tables.stores.committer import State
from kraft_pipeline.tables.stores.delta import DeltaTableOf
from kraft_pipeline.tables.stores.deltapositions import POSITIONS
from kraft_pipeline.tables.stores.deltarestores import taken_back
from kraft_pipeline.tables.stores.opening import options_of
from kraft_pipeline.tables.stores.storage import File, Folder
from kraft_protocol.client.cluster import Cluster
from kraft_protocol.client.errors import DataLossError
from tests.unit.pipeline.tables.test_table_changes import parsed
from tests.unit.pipeline.tables.test_tables import position

SCHEMA = pa.schema([("n", pa.int64())])


def opened(path: Path, app: str = "a") -> DeltaTableOf:
    return DeltaTableOf(str(path), app, {})


def committed(path: Path, batches: int, app: str = "a") -> DeltaTableOf:
    table = opened(path, app)
    table.create(SCHEMA, [])
    table.claim(5)
    for batch in range(batches):
        table.commit(batch, position(batch), [], after=batch - 1)
    return table


@pytest.mark.parametrize("batches", [0, 1])
def test_batches_committed_between_log_and_positions_are_not_lost(
    tmp_path: Path, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer takes over and commits two batches after a reader has read the log, before it lists the files."""
    writer = committed(tmp_path, batches)
    reader, plain, begin = opened(tmp_path), Folder.list, [True]

    def listed(folder: Folder, path: str = "") -> Iterator[File]:
        if path.startswith(POSITIONS) and begin:
            begin.clear()
            writer.claim(6)
            for batch in (batches, batches + 1):
                writer.commit(batch, position(batch), [], after=batch - 1)
        return plain(folder, path)

    monkeypatch.setattr(Folder, "list", listed)
    assert reader.state() == State(batches + 1, position(batches + 1), epoch=6)
    assert not begin


def test_a_fenced_writer_is_fenced_also_if_its_log_is_behind_the_positions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(tmp_path, 1)
    old, new, plain, begin = opened(tmp_path), opened(tmp_path), Folder.list, [True]
    assert old.join() == 5
    old._known = None  # as after RECENT commits or a change of the columns

    def listed(folder: Folder, path: str = "") -> Iterator[File]:
        if path.startswith(POSITIONS) and begin:
            begin.clear()
            new.claim(6)
            for batch in (1, 2):
                new.commit(batch, position(batch), [], after=batch - 1)
        return plain(folder, path)

    monkeypatch.setattr(Folder, "list", listed)
    with pytest.raises(FencedError, match="writer 6 has taken over"):
        old.commit(1, position(1), [], after=0)
    assert not begin


def rows(batches: int) -> int:
    """The version of a table of `committed` after its first batches: creation and claim come before them."""
    return batches + 1


def lost(table: DeltaTableOf) -> list[tuple[str, int, int, int]]:
    return [loss[:4] for loss in table.state().lost]


def test_a_restore_takes_records_out_of_the_table_until_the_next_batch(tmp_path: Path) -> None:
    """Before, the writer continued after its last batch, and nothing reported the rows between."""
    writer = committed(tmp_path, 4)
    assert lost(writer) == []
    DeltaTable(str(tmp_path)).restore(rows(2))
    expected = [("t", 0, 1, 3)]
    for table in (writer, opened(tmp_path)):
        assert lost(table) == expected
        cause = table.state().lost[0].cause
        assert cause == f"RESTORE took batches 2 to 3 out of the table in its version {rows(4) + 1}"
    new = opened(tmp_path)
    new.claim(6)
    assert lost(opened(tmp_path)) == expected, "the claim has no rows"
    new.state()
    new.commit(4, position(5), [], after=3)
    for table in (writer, new, opened(tmp_path)):
        assert table.state() == State(4, position(5), epoch=6)


def test_a_restore_that_was_undone_or_keeps_the_last_batch_takes_nothing(tmp_path: Path) -> None:
    writer = committed(tmp_path, 3)
    DeltaTable(str(tmp_path)).alter.set_table_properties({"delta.appendOnly": "false"})
    DeltaTable(str(tmp_path)).restore(rows(3))
    assert lost(writer) == lost(opened(tmp_path)) == []
    DeltaTable(str(tmp_path)).restore(rows(1))
    assert lost(writer) == lost(opened(tmp_path)) == [("t", 0, 0, 2)]
    DeltaTable(str(tmp_path)).restore(rows(3) + 2)
    assert lost(writer) == lost(opened(tmp_path)) == []


def test_a_restore_by_a_time_takes_the_batches_after_it(tmp_path: Path) -> None:
    committed(tmp_path, 3)
    for number, file in enumerate(sorted((tmp_path / "_delta_log").glob("*.json"))):
        os.utime(file, (1000 + number, 1000 + number))
        file.write_text(re.sub(r'"timestamp":\d+', f'"timestamp":{1000_000 + 1000 * number}', file.read_text()))
        os.utime(file, (1000 + number, 1000 + number))
    DeltaTable(str(tmp_path)).restore(datetime.fromtimestamp(1000 + rows(2), UTC))
    assert lost(opened(tmp_path)) == [("t", 0, 1, 2)]


def test_a_restore_to_an_unknown_version_may_have_taken_all(tmp_path: Path) -> None:
    """Spark records a time as the text that the user gave."""
    committed(tmp_path, 2)
    DeltaTable(str(tmp_path)).restore(rows(1))
    last = max((tmp_path / "_delta_log").glob("*.json"))
    last.write_text(last.read_text().replace('{"version":"2"}', '{"timestamp":"2026-01-01 10:00"}'))
    whole = Position({("t", 0): 1}, "c", {"t": "00"})
    assert lost(opened(tmp_path)) == [("t", 0, 0, whole.offsets["t", 0])]


def test_a_restore_after_the_last_batch_has_left_the_log_takes_nothing() -> None:
    """All records counted as lost, and the run stopped: a table that was idle for longer than its log is retained."""
    restore = {"version": 9, "operation": "RESTORE", "operationParameters": {"version": "7"}}
    others = [{"version": number, "operation": "OPTIMIZE"} for number in (8, 7, 6)]
    assert taken_back([restore, *others], "app", 3, position(4)) == []
    own = {"version": 8, "kraft.app": "app", "kraft.batch": "3"}
    assert len(taken_back([restore, own, *others[1:]], "app", 3, position(4))) == 1
    assert len(taken_back([restore, others[0]], "app", 3, position(4))) == 1, "the log lacks the restored version"


def test_a_batch_is_not_committed_after_a_restore_that_its_writer_has_not_seen(tmp_path: Path) -> None:
    writer = committed(tmp_path, 2)
    writer.state()
    DeltaTable(str(tmp_path)).restore(rows(1))
    with pytest.raises(ConflictError, match="RESTORE took batches 1 to 1 out of the table in its version 4"):
        writer.commit(2, position(2), [], after=1)
    assert lost(writer) == [("t", 0, 0, 1)]
    writer.commit(2, position(2), [], after=1)
    assert lost(opened(tmp_path)) == []


def test_a_run_stops_after_a_restore_until_its_losses_are_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for strict in (True, False):
        path = tmp_path / str(strict)
        path.mkdir()
        given = replace(parsed(path=str(path)), fail_on_data_loss=strict)
        writer = committed(path, 3, given.app_id)
        DeltaTable(str(path)).restore(rows(1))
        asking = Asking(Feed(given, once=True), Sizes(given, options_of(given)))
        monkeypatch.setattr(asking._planner, "plan", lambda *_: None)
        if strict:
            with pytest.raises(DataLossError, match=r"t-0: offsets 0 to 1 may have been lost: RESTORE took batches"):
                asking.next(cast("Cluster", None), lambda *_: None)
            assert acknowledge(given) == 1
        assert asking.next(cast("Cluster", None), lambda *_: None) is None
        assert writer.state().lost
