"""Dead letters replayed after a repair: each becomes a row once, even after kills; repeated failures stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables import replay as module
from kraft_pipeline.tables import values
from kraft_pipeline.tables.engines.plans import Plan
from kraft_pipeline.tables.errors import FencedError
from kraft_pipeline.tables.maintenance import compact
from kraft_pipeline.tables.repeats import FirstAttempt
from kraft_pipeline.tables.replay import Replayed, replay
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.specs.table_spec import SpecError
from kraft_pipeline.tables.stores.opening import open_table
from kraft_pipeline.tables.stores.storage import open_storage
from kraft_protocol.client.errors import ClientError
from kraft_protocol.records.batch import build_batch
from tests.documents import table_document
from tests.feed import Feed


def table(path: Path, value: dict[str, Any] | None = None, **more: Any) -> table_spec.TableSpec:
    value = {"format": "json", **(value or {})}
    sections = {"engine": {"mode": "inline"}, "value": value, "table": {"path": str(path), **more}}
    return table_spec.parse(table_document(**sections))


def rows(given: table_spec.TableSpec) -> list[dict[str, Any]]:
    """The files in the format's own log, read by DuckDB."""
    paths = [f"{given.path}/{file.path}" for file in open_table(given).live()]
    if not paths:
        return []
    query = duckdb.read_parquet(paths, union_by_name=True, hive_partitioning=False)
    return query.order("_offset").to_arrow_table().to_pylist()


def left(given: table_spec.TableSpec) -> list[int]:
    """The offsets of the dead letters."""
    paths = [f"{given.dead_letter_path}/{file.path}" for file in open_table(given, dead_letters=True).live()]
    if not paths:
        return []
    return [row[0] for row in duckdb.read_parquet(paths).order('"offset"').project('"offset"').fetchall()]


VALUES = [b'{"id": 0}', b'{"id": 1, "more": "a"}', b"not json", b'{"id": 3, "more": "b"}']
REPAIRED = {"evolve": "additive"}


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_a_repaired_dead_letter_becomes_a_row_once(tmp_path: Path, kind: str) -> None:
    before = table(tmp_path / "t", {"schema": {"id": "long"}}, format=kind)
    feed = Feed(before)
    feed.values(*VALUES)
    feed.values(b'{"id": 4, "more": "c"}')
    assert left(before) == [1, 2, 3, 4]
    assert replay(before) == Replayed(0, 4)
    after = table(tmp_path / "t", {"schema": {"id": "long"}, **REPAIRED}, format=kind)
    assert replay(after) == Replayed(3, 1)
    assert [(row["id"], row["more"], row["_offset"]) for row in rows(after)] == [
        (0, None, 0),
        (1, "a", 1),
        (3, "b", 3),
        (4, "c", 4),
    ]
    assert left(after) == [2]
    assert replay(after) == Replayed(0, 1)
    again = Feed(after)
    again.runner.begin()
    again._end = 5
    again.values(b'{"id": 5, "more": "d"}', b"bad")
    assert [row["id"] for row in rows(after)] == [0, 1, 3, 4, 5]
    assert left(after) == [2, 6]


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_dead_letters_with_the_same_offset_are_replayed_apart(tmp_path: Path, kind: str) -> None:
    """A topic that was made anew has other records with the offsets of the former one.

    The row of a repaired letter was committed, but the letter stayed, so later replays added the row again.
    """
    before = table(tmp_path / "t", {"schema": {"id": "long"}}, format=kind)
    feed = Feed(before)
    feed.put(0, 2, build_batch([(b"k", b"not json"), (b"k", b'{"id": 5, "more": "b"}')], base_offset=0))
    feed.put(0, 1, build_batch([(b"k", b'{"id": 1, "more": "a"}')], base_offset=0))
    assert left(before) == [0, 0, 1]
    after = table(tmp_path / "t", {"schema": {"id": "long"}, **REPAIRED}, format=kind)
    assert replay(after) == Replayed(2, 1)
    assert left(after) == [0]
    assert replay(after) == Replayed(0, 1)
    assert [(row["id"], row["_offset"]) for row in rows(after)] == [(1, 0), (5, 1)]


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_dead_letters_that_are_merged_meanwhile_are_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A Parquet table removes merged files at once, so a list of them may be stale."""
    before = table(tmp_path / "t", {"schema": {"id": "long"}}, format=kind)
    feed = Feed(before)
    feed.values(b'{"id": 0, "more": "a"}')
    feed.values(b'{"id": 1, "more": "b"}')
    groups, merged = module._groups, list[tuple[int, int]]()

    def slow(files: Any) -> Any:
        if not merged:
            merged.append(compact(before, dead_letters=True))
        return groups(files)

    monkeypatch.setattr(module, "_groups", slow)
    after = table(tmp_path / "t", {"schema": {"id": "long"}, **REPAIRED}, format=kind)
    assert replay(after) == Replayed(2, 0)
    assert merged == [(2, 1)]
    assert [row["id"] for row in rows(after)] == [0, 1]


class KilledError(Exception):
    """Stands for SIGKILL: no code below catches it."""


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
@pytest.mark.parametrize("moment", ["before the list", "before the rows", "between", "after"])
def test_a_replay_that_is_killed_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, moment: str
) -> None:
    given = table(tmp_path / "t", {"schema": {"id": "long"}}, format=kind)
    Feed(given).values(*VALUES)
    after = table(tmp_path / "t", {"schema": {"id": "long"}, **REPAIRED}, format=kind)

    def killed(*_: Any) -> None:
        raise KilledError

    name = {"before the list": "_put", "before the rows": "_commit", "between": "_remove"}.get(moment)
    if name is not None:
        with monkeypatch.context() as patched:
            patched.setattr(module._Replay, name, killed)
            with pytest.raises(KilledError):
                replay(after)
    else:
        replay(after)
    if moment == "between":
        compact(after, dead_letters=True)  # the letters may be in other files by then
        assert [row["id"] for row in rows(after)] == [0, 1, 3]
    replay(after)
    assert [row["id"] for row in rows(after)] == [0, 1, 3]
    assert left(after) == [2]
    assert not list((tmp_path / "t_dead_letters").glob("_kraft_replays/*"))
    known = {file.path for file in open_table(after).live()}
    there = {path.relative_to(tmp_path / "t").as_posix() for path in (tmp_path / "t").rglob("*replay*b0*.parquet")}
    assert there <= known


def test_dead_letters_of_an_unfinished_batch_are_left_to_the_stream(tmp_path: Path) -> None:
    given = table(tmp_path / "t", {"schema": {"id": "long"}})
    Feed(given).values(*VALUES)
    dead = open_table(given, dead_letters=True)
    dead.join()
    state = dead.state()
    assert state.position is not None
    file = dead.live()[0]
    storage = open_storage(given.dead_letter_path, given.storage)
    whole = pa.BufferReader(storage.read(file.path))
    import pyarrow.parquet as pq

    letters = pq.read_table(whole)
    number = letters.column_names.index("batch")
    letters = letters.set_column(number, "batch", pa.array([1] * letters.num_rows, pa.int64()))
    out = pa.BufferOutputStream()
    pq.write_table(letters, out)
    storage.write("later.parquet", out.getvalue())
    from kraft_pipeline.tables.stores.committer import Added

    position = Position({("t", 0): 9}, "c", {"t": "00" * 16}, {("t", 0): 0})
    dead.commit(1, position, [Added("later.parquet", out.getvalue().size, letters.num_rows)], after=0)
    after = table(tmp_path / "t", {"schema": {"id": "long"}, **REPAIRED})
    assert replay(after) == Replayed(2, 4)
    assert left(after) == [1, 2, 2, 3]


def test_dead_letters_of_an_unfinished_batch_are_found_after_a_replay(tmp_path: Path) -> None:
    """They were in a merged file with others. The new file had the name of the replay's batch, so a repeated batch of
    the stream did not read it and made its letters again.
    """
    given = table(tmp_path / "t", {"schema": {"id": "long"}})
    feed = Feed(given)
    feed.values(*VALUES)

    def killed(*_: Any) -> None:
        raise KilledError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(feed.runner, "_changes", killed)
        with pytest.raises(KilledError):
            feed.values(b"not json either")
    assert compact(given, dead_letters=True) == (2, 1)
    assert replay(table(tmp_path / "t", {"schema": {"id": "long"}, **REPAIRED})) == Replayed(2, 2)
    dead = open_table(given, dead_letters=True)
    states = open_table(given).state(), dead.state()
    end = Position({("t", 0): 5}, "c", {"t": "00" * 16}, {("t", 0): 0})
    plan = Plan(*states, {("t", 0): 4}, end, 0, again=True, full=True)
    found = FirstAttempt.of(plan, 1, dead, open_storage(given.dead_letter_path, given.storage), given.app_id)
    assert {key: list(offsets) for key, offsets in found.dead.items()} == {("t", 0): [4]}


def test_a_replay_that_was_replaced_removes_no_list_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next replay had made rows of its letters and could not remove them without its list, nor could any later
    one.
    """
    given = table(tmp_path / "t", {"schema": {"id": "long"}})
    Feed(given).values(*VALUES)
    after = table(tmp_path / "t", {"schema": {"id": "long"}, **REPAIRED})
    begun, next_, remove = module._Replay(after), module._Replay(after), module._Replay._remove
    unsettled = module.intents.unsettled

    def slow(*given: Any) -> Any:
        """The first replay has claimed the tables, and is slow: the next one begins and writes all its rows."""
        monkeypatch.setattr(module.intents, "unsettled", unsettled)
        monkeypatch.setattr(module._Replay, "_remove", killed)
        with pytest.raises(KilledError):
            next_.run()
        monkeypatch.setattr(module._Replay, "_remove", remove)
        return unsettled(*given)

    def killed(*_: Any) -> None:
        raise KilledError

    monkeypatch.setattr(module.intents, "unsettled", slow)
    with pytest.raises(FencedError):
        begun.run()
    assert replay(after) == Replayed(0, 1)
    assert [row["id"] for row in rows(after)] == [0, 1, 3]
    assert left(after) == [2]


def test_rows_by_key_do_not_go_back(tmp_path: Path) -> None:
    strict = {"schema": {"id": "long", "n": "long"}}
    by_key = {"mode": "upsert", "key": ["id"]}
    feed = Feed(table(tmp_path / "t", strict, **by_key))
    old = b'{"id": 1, "n": 1, "more": 1}', b'{"id": 2, "n": 1, "more": 1}', b'{"id": 2, "n": 2, "more": 2}'
    feed.put(0, 4, build_batch([(b"k", value) for value in (*old, b'{"id": 1, "n": 9}')], base_offset=0))
    after = table(tmp_path / "t", {**strict, **REPAIRED}, **by_key)
    assert replay(after) == Replayed(2, 0)
    found = sorted(DeltaTable(after.path).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["n"], row["more"]) for row in found] == [(1, 9, None), (2, 2, 2)]


def test_an_unreachable_registry_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = table(tmp_path / "t", {"schema": {"id": "long"}})
    Feed(given).values(*VALUES)
    monkeypatch.setattr(values, "decode", _away)
    with pytest.raises(ClientError):
        replay(given)
    monkeypatch.undo()
    assert left(given) == [1, 2, 3]
    assert [row["id"] for row in rows(given)] == [0]


def _away(*_: Any, **__: Any) -> None:
    raise ClientError("schema registry: away")


def test_an_impossible_replay_is_refused(tmp_path: Path) -> None:
    assert replay(table(tmp_path / "t")) == Replayed(0, 0)
    from dataclasses import replace

    with pytest.raises(SpecError, match=r"spec.transform: dead letters of a table with a transform"):
        replay(replace(table(tmp_path / "t"), transform="SELECT 1"))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_replay_does_not_undo_a_row_of_a_later_offset(tmp_path: Path, kind: str) -> None:
    """The producer's clock went back between the two records, so the older one counted as newer by its time."""
    by_key = {"mode": "upsert", "key": ["id"], "format": kind}
    before = table(tmp_path / "t", {"schema": {"id": "long", "n": "long"}}, **by_key)
    feed, now = Feed(before), 1_700_000_000_000
    for offset, value in enumerate((b'{"id": 1, "n": 1, "more": 1}', b'{"id": 1, "n": 2}')):
        log = build_batch([(b"k", value)], base_offset=offset, timestamp=now - 60_000 * offset)
        feed.put(offset, offset + 1, log)
    after = table(tmp_path / "t", {"schema": {"id": "long", "n": "long"}, **REPAIRED}, **by_key)
    replay(after)
    assert [(row["id"], row["n"], row["_offset"]) for row in rows(after)] == [(1, 2, 1)]
    assert left(after) == []


def _log(offset: int, minute: int, *texts: bytes) -> bytes:
    values = [(b"k", text) for text in texts]
    return build_batch(values, base_offset=offset, timestamp=1_700_000_000_000 + 60_000 * minute)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("is_named", [True, False], ids=["with ids", "of an earlier release"])
def test_a_letter_of_a_former_topic_replaces_no_row_of_the_present_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, is_named: bool
) -> None:
    """Its offset is greater, because offsets begin at 0 in a topic that was made anew."""
    by_key = {"mode": "upsert", "key": ["id"], "format": kind}
    schema = {"schema": {"id": "long", "n": "long"}}
    feed = Feed(table(tmp_path / "t", schema, **by_key))
    with monkeypatch.context() as patched:
        if not is_named:
            patched.setattr(values, "identified", lambda letters, _: letters)
        feed.put(7, 10, _log(7, 0, b'{"id": 1, "n": 7, "x": 1}', b'{"id": 2, "n": 8, "x": 1}', b'{"id": 2, "n": 9}'))
        feed.put(0, 3, _log(0, 9, b'{"id": 1, "n": 0}', b'{"id": 3, "n": 1, "x": 1}', b'{"id": 4, "n": 2}'), "0a" * 16)
    assert left(feed._given) == [1, 7, 8]
    after = table(tmp_path / "t", {**schema, **REPAIRED}, **by_key)
    replay(after)
    assert sorted((row["id"], row["n"]) for row in rows(after)) == [(1, 0), (2, 9), (3, 1), (4, 2)]
    assert left(after) == []


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_letters_of_several_lives_of_a_topic_keep_the_newest(tmp_path: Path, kind: str) -> None:
    by_key = {"mode": "upsert", "key": ["id"], "format": kind}
    schema = {"schema": {"id": "long", "n": "long"}}
    feed = Feed(table(tmp_path / "t", schema, **by_key))
    for life, offset in enumerate((9, 5, 1)):
        text = b'{"id": 1, "n": %d, "x": 1}' % life
        feed.put(offset, offset + 1, _log(offset, life, text), f"{life:032x}")
    after = table(tmp_path / "t", {**schema, **REPAIRED}, **by_key)
    replay(after)
    assert [(row["id"], row["n"]) for row in rows(after)] == [(1, 2)]
    assert left(after) == []


@pytest.mark.parametrize("kind", ["append", "upsert"])
def test_a_column_that_its_owner_has_widened_takes_the_dead_letters(tmp_path: Path, kind: str) -> None:
    """deltalake neither reads nor writes tables with Delta's type widening, so the owner rewrites the table."""
    more = {"mode": "upsert", "key": ["id"]} if kind == "upsert" else {}
    narrow, wide = ({"schema": {"id": "long", "n": kind}} for kind in ("int", "long"))
    given = table(tmp_path / "t", narrow, format="delta", **more)
    feed = Feed(given)
    feed.values(b'{"id": 1, "n": 1}', b'{"id": 2, "n": 1099511627776}')
    assert left(given) == [1]
    old = DeltaTable(given.path)
    rewritten = old.to_pyarrow_table()
    at = rewritten.column_names.index("n")
    rewritten = rewritten.set_column(at, "n", rewritten.column("n").cast(pa.int64()))
    write_deltalake(old, rewritten, mode="overwrite", schema_mode="overwrite")
    feed.values(b'{"id": 3, "n": 2}')  # the running writer
    given = table(tmp_path / "t", wide, format="delta", **more)
    assert replay(given) == Replayed(1, 0)
    found = DeltaTable(given.path).to_pyarrow_table().sort_by("id")
    assert found.column("n").to_pylist() == [1, 1 << 40, 2]


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_a_replay_with_another_declared_type_widens_the_column_or_warns(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The letters stayed without a word, in Iceberg also if the column can become wider."""
    narrow, wide = ({"schema": {"id": "long", "n": kind}} for kind in ("int", "long"))
    given = table(tmp_path / "t", narrow, format=kind)
    Feed(given).values(b'{"id": 1, "n": 1}', b'{"id": 2, "n": 1099511627776}')
    assert replay(given) == Replayed(0, 1)
    assert caplog.messages == []
    given = table(tmp_path / "t", wide, format=kind)
    kept = f"column=n type=int32 declared=int64 table={given.path}"
    found = replay(given)
    if kind == "iceberg":
        assert (found, caplog.messages) == (Replayed(1, 0), [])
        assert [row["n"] for row in rows(given)] == [1, 1 << 40]
        return
    assert found == Replayed(0, 1)
    assert caplog.messages == [f"a column keeps its type, which value.schema cannot change: {kept}"]
    caplog.clear()
    feed = Feed(given)
    feed.runner.begin()
    assert [kept in text for text in caplog.messages] == [True]
