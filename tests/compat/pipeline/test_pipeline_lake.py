"""Tables of KafkaTable, read by Spark with Delta's and Iceberg's own jars, and tables that both write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kraft_pipeline.tables import maintenance, runner
from kraft_pipeline.tables.specs import table_spec
from tests.compat.pipeline.test_pipeline_client import create, produced
from tests.compat.pipeline.test_pipeline_table import document, run, send
from tests.compat.pipeline.test_pipeline_table_life import keyed
from tests.compat.targets import Ours
from tests.lake import Lake

CLIENT = "KafkaTable read by Spark"
KINDS = ["delta", "iceberg"]
pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("lake"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    target = Ours("kraftcluster", tmp_path_factory.mktemp("server"))
    yield target.start()
    target.kill()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder) as found:
        yield found


def version(lake: Lake, kind: str, path: str, batch: int) -> int:
    """Spark's version number of the table after a batch. Later transactions name it as well (a writer's claim)."""
    if kind == "delta":
        history = DeltaTable(path).history()
        return min(int(one["version"]) for one in history if one.get("kraft.batch") == str(batch))
    snapshots = lake.read("iceberg", f"{path}#snapshots")
    named = (one for one in snapshots if one["summary"].get("kraft.batch") == str(batch))
    return int(min(named, key=lambda one: one["committed_at"])["snapshot_id"])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_table_that_grew(server: Ours, lake: Lake, folder: Path, kind: str) -> None:
    """Nested columns, partitions of odd and missing values, new columns, merged small files, earlier versions."""
    create(server, f"grown-{kind}")
    given = document(
        server,
        f"grown-{kind}",
        folder / f"grown_{kind}",
        kind,
        value={"format": "json", "evolve": "additive"},
        table={"partitionBy": ["date", "c"]},
    )
    parsed, names = table_spec.parse(given), ["a b", "q/=", "100%", "ä", None]
    text = '{"n": %d, "c": %s, "deep": [{"x": %d}, {}]}'
    values = [text % (n, "null" if names[n % 5] is None else f'"{names[n % 5]}"', n) for n in range(50)]
    send(server, f"grown-{kind}", [value.encode() for value in values])
    run(given)
    send(server, f"grown-{kind}", [b'{"n": 50, "c": "a b", "more": {"when": "now"}, "f": 0.5}', None])
    run(given)
    before = version(lake, kind, parsed.path, 0)
    assert maintenance.compact(parsed) == (2 * 2, 2)  # the partitions "a b" and null
    found = sorted(lake.read(kind, parsed.path), key=lambda row: row["_offset"])
    assert [row["_offset"] for row in found] == list(range(52))
    assert [row["n"] for row in found] == [*range(51), None]
    assert [row["c"] for row in found] == [*(names[n % 5] for n in range(50)), "a b", None]
    assert [row["deep"] for row in found] == [*([{"x": n}, {"x": None}] for n in range(50)), None, None]
    assert [row["more"] for row in found[-3:]] == [None, {"when": "now"}, None]
    assert [row["f"] for row in found[-3:]] == [None, 0.5, None]
    assert {(row["_topic"], row["_partition_id"]) for row in found} == {(f"grown-{kind}", 0)}
    for name in names:
        where = "c IS NULL" if name is None else f"c = '{name}'"
        assert len(lake.read(kind, parsed.path, where)) == [name, "a b", None].count(name) + 9
    day = found[0]["_timestamp"].date()
    assert len(lake.read(kind, parsed.path, f"_timestamp >= DATE'{day}'")) == 52
    earlier = lake.read(kind, parsed.path, versionAsOf=before)
    assert sorted(row["n"] for row in earlier) == list(range(50))
    assert "more" not in earlier[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_of_spark_reads_over_a_compaction(server: Ours, lake: Lake, folder: Path, kind: str) -> None:
    """Iceberg's streaming reader fails at an overwriting snapshot; a replacing snapshot gives it no new rows."""
    create(server, f"streamed-{kind}")
    given = document(server, f"streamed-{kind}", folder / f"streamed_{kind}", kind)
    parsed, copy = table_spec.parse(given), folder / f"copied_{kind}"
    for first in range(0, 30, 10):
        produced(server, f"streamed-{kind}", 10, first=first)
        run(given)
    assert len(lake.stream(kind, parsed.path, copy)) == 30
    produced(server, f"streamed-{kind}", 10, first=30)
    run(given)
    assert maintenance.compact(parsed) == (4, 1)
    produced(server, f"streamed-{kind}", 10, first=40)
    run(given)
    assert sorted(row["offset"] for row in lake.stream(kind, parsed.path, copy)) == list(range(50))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_rows_by_key(server: Ours, lake: Lake, folder: Path, kind: str) -> None:
    """The last row of each key, no row that a tombstone deleted, and the rows from before."""
    create(server, f"keyed-{kind}")
    given = document(
        server,
        f"keyed-{kind}",
        folder / f"keyed_{kind}",
        kind,
        value={"format": "json", "schema": {"n": "long"}},
        table={"mode": "upsert", "key": ["_key"], "partitionBy": ["hour"]},
        maintenance={"vacuumAfter": "0s"},
    )
    parsed, expected = table_spec.parse(given), dict[str, int]()
    for first in range(0, 90, 30):
        changes = [(f"k{n * 7 % 20}", None if n % 4 == 0 else n) for n in range(first, first + 30)]
        keyed(server, f"keyed-{kind}", [(key, None if n is None else b'{"n": %d}' % n) for key, n in changes])
        run(given)
        for key, n in changes:
            expected.pop(key, None)
            if n is not None:
                expected[key] = n
        if not first:
            after_one = dict(expected)

    def there(**options: Any) -> dict[str, int]:
        found = lake.read(kind, parsed.path, **options)
        assert len({bytes(row["_key"]) for row in found}) == len(found)
        return {row["_key"].decode(): row["n"] for row in found}

    assert there() == expected
    assert there(versionAsOf=version(lake, kind, parsed.path, 0)) == after_one
    assert lake.read(kind, parsed.path, "_key = CAST('k6' AS BINARY)")[0]["n"] == expected["k6"]
    maintenance.compact(parsed)
    maintenance.vacuum(parsed)
    assert there() == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_spark_also_writes_stays_correct(server: Ours, lake: Lake, folder: Path, kind: str) -> None:
    """Rows that Spark deletes stay deleted after later commits and merges."""
    name = f"shared_{kind}"
    create(server, name)
    given = document(server, name, folder / name, kind, value={"format": "json", "schema": {"n": "long"}})
    parsed, theirs = table_spec.parse(given), f"lake.{name}" if kind == "iceberg" else f"delta.`{folder / name}`"

    def sent(first: int) -> None:
        send(server, name, [b'{"n": %d}' % n for n in range(first, first + 10)])
        run(given)

    sent(0)
    sent(10)
    if kind == "iceberg":
        modes = ", ".join(f"'write.{what}.mode'='merge-on-read'" for what in ("delete", "update", "merge"))
        lake.sql(f"ALTER TABLE {theirs} SET TBLPROPERTIES ({modes})")
    lake.sql(f"DELETE FROM {theirs} WHERE n % 2 = 1")
    sent(20)
    expected = [*range(0, 20, 2), *range(20, 30)]
    maintenance.compact(parsed)
    assert sorted(row["n"] for row in lake.read(kind, parsed.path)) == expected
    assert maintenance.status(parsed)["lag"] == 0
    if kind == "iceberg":
        assert {file.whole for file in runner.open_table(parsed).live()} == {False}
        given["spec"]["table"] |= {"mode": "upsert", "key": ["n"]}
        send(server, name, [b'{"n": 4}'])
        with pytest.raises(ValueError, match="another writer has deleted rows by files of their own"):
            run(given)
