"""The cost of a commit depends on its changes, not on the number of earlier commits: objects and bytes, counted."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.table.snapshots import Snapshot

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables.iceberg import expiry
from kraft_pipeline.tables.stores.committer import State
from kraft_pipeline.tables.stores.storage import Folder
from tests.unit.pipeline.tables.test_table_writers import SCHEMA, file, opened

COMMITS = int(os.environ.get("KRAFT_COMMITS", "150"))
"""Below the thousand for which the costs are meant: each takes a tenth of a second, and what grows shows by then."""
LATE = range(COMMITS - 20, COMMITS)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts calls of a storage by name, bytes read and written, and copied snapshots."""
    found: Counter[str] = Counter()

    def counted(name: str, plain: Any) -> Any:
        def call(store: Folder, path: str = "", *arguments: Any) -> Any:
            found[name] += 1
            result = plain(store, path, *arguments)
            if name == "read":
                found["bytes read"] += len(result)
            if name == "write":
                found["bytes written"] += memoryview(arguments[0]).nbytes
            if name == "list":
                result = list(result)
                found["objects listed"] += len(result)
            return result

        return call

    def copied(snapshot: Snapshot, memo: Any) -> Snapshot:
        found["snapshots copied"] += 1
        return snapshot

    for name in ("read", "open", "write", "create", "exists", "list", "delete"):
        monkeypatch.setattr(Folder, name, counted(name, getattr(Folder, name)))
    monkeypatch.setattr(Snapshot, "__deepcopy__", copied)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a thousand commits are counted, but need not be durable
    return found


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_a_commit_costs_as_much_after_many(
    tmp_path: Path, kind: str, counts: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, PyIceberg copied all snapshots 17 times in each commit: 0.03 s at the tenth, a second at the hundredth.

    Each version of Iceberg's metadata had all snapshots, so each commit wrote 0.8 kB more than the last. A planner
    listed all of Parquet's log to find one new transaction.
    """
    monkeypatch.setattr(expiry, "VERSIONS", 20)
    table, planner = opened(kind, tmp_path), opened(kind, tmp_path)
    table.create(SCHEMA, [])
    table.claim(5)
    reported: dict[int, Counter[str]] = {}
    for batch in range(COMMITS + 1):
        position = Position({("t", n): batch for n in range(100)}, "c", {"t": "00" * 16})
        added = file(tmp_path, 5, batch)
        counts.clear()
        planner.state()
        table.state()
        table.commit(batch, position, [added], after=batch - 1)
        reported[batch] = Counter(counts)
    names = {name for one in reported.values() for name in one}
    # Twenty commits at a time: every hundredth also merges the manifests before it.
    early, late = ({name: median(reported[n][name] for n in at) for name in names} for at in (range(10, 30), LATE))
    for name in names:
        # A manifest list has up to a hundred manifests before they are merged.
        most = 2 * early[name] + 64 * 1024 if name.startswith("bytes") else early[name] + 1
        assert late[name] <= most, name


def test_a_delta_batch_is_planned_without_delta_rs_and_loaded_once_for_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a batch loaded the table three times and read its history. Each load lists the log: 10,000 names a week.

    delta-rs does not load its own commits, so a commit loads the last one.
    """
    writer, planner = opened("delta", tmp_path), opened("delta", tmp_path)
    writer.create(SCHEMA, [])
    writer.claim(5)
    writer.commit(0, Position({("t", 0): 1}, "c"), [file(tmp_path, 5, 0)], after=-1)
    assert planner.state() == writer.state()
    loads = Counter[str]()
    for name in ("update_incremental", "history", "transaction_version"):
        plain = getattr(DeltaTable, name)

        def counted(table: DeltaTable, *given: Any, name: str = name, plain: Any = plain) -> Any:
            loads[name] += 1
            return plain(table, *given)

        monkeypatch.setattr(DeltaTable, name, counted)
    for batch in range(1, 5):
        position = Position({("t", 0): batch + 1}, "c")
        writer.commit(batch, position, [file(tmp_path, 5, batch)], after=batch - 1)
        assert planner.state() == writer.state() == State(batch, position, 5)
    assert loads == {"update_incremental": 4}
    other = opened("delta", tmp_path)
    other.join()
    other.replace([added.path for added in other.live()], [file(tmp_path, 5, 9)])
    other.create(SCHEMA.append(pa.field("m", pa.int64())), [])
    loads.clear()
    planner.state()
    assert loads["update_incremental"] == 1
    columns = planner.schema()
    assert columns is not None
    assert columns.names == ["n", "m"], "a change of the columns is seen"
    writer.commit(5, Position({("t", 0): 6}, "c"), [file(tmp_path, 5, 5)], after=4)
    assert {added.path for added in planner.live()} == {file(tmp_path, 5, n).path for n in (5, 9)}
