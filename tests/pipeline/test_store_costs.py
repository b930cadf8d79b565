"""The cost of a commit in an object store, as the store sees it: requests and bytes, also those of delta-rs."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from statistics import median

import pyarrow as pa
import pytest

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables.iceberg import IcebergTable, expiry
from kraft_pipeline.tables.stores.committer import Added, Committer
from kraft_pipeline.tables.stores.delta import DeltaTableOf
from kraft_pipeline.tables.stores.parquet import ParquetTable
from kraft_pipeline.tables.stores.storage import ObjectStore
from tests.objectstore import object_store
from tests.storeproxy import proxy_of

COMMITS = int(os.environ.get("KRAFT_COMMITS", "110"))
"""Delta makes a checkpoint of every hundredth."""
FEWER = 70
pytestmark = [pytest.mark.xdist_group("stores"), pytest.mark.timeout(900)]


def opened(kind: str, store: dict[str, str]) -> Committer:
    if kind == "delta":
        return DeltaTableOf("s3://lake/t", "a", store)
    storage = ObjectStore("s3://lake/t", store)
    return ParquetTable(storage, "a") if kind == "parquet" else IcebergTable(storage, "a", {})


@pytest.mark.parametrize(
    ("kind", "commits"),
    [
        ("delta", COMMITS),
        ("iceberg", FEWER),
        ("parquet", FEWER),
        pytest.param("iceberg", COMMITS, marks=pytest.mark.slow),
        pytest.param("parquet", COMMITS, marks=pytest.mark.slow),
    ],
)
def test_a_commit_costs_the_store_as_much_after_many(
    tmp_path: Path, kind: str, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, delta-rs read all commits since the checkpoint four times, with 350 requests, and listed all of it."""
    monkeypatch.setattr(expiry, "VERSIONS", 20)
    reported: dict[int, Counter[str]] = {}
    with object_store(tmp_path, "lake") as direct, proxy_of(direct) as (proxy, store):
        table = opened(kind, store)
        table.create(pa.schema([("n", pa.int64())]), [])
        table.claim(5)
        for batch in range(commits):
            end = Position({("t", n): batch for n in range(100)}, "c", {"t": "00" * 16})
            proxy.counts.clear()
            table.state()
            table.commit(batch, end, [Added(f"f{batch}.parquet", 100, 1)], after=batch - 1)
            reported[batch] = Counter(proxy.counts)
        # Not through the proxy, which runs in this process: delta-rs reads a history without releasing other threads.
        assert opened(kind, direct).state() == table.state()
    names = {name for one in reported.values() for name in one}
    early, late = (
        {name: median(reported[n][name] for n in at) for name in names}
        for at in (range(10, 30), range(commits - 40, commits))
    )
    for name in names:
        # Delta lists the names since its checkpoint; Iceberg's lists have up to a hundred manifests.
        most = 2 * early[name] + 64 * 1024 if name in ("up", "down") else early[name] + 2
        assert late[name] <= most, (name, early, late)
