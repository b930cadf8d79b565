"""Generations of topics that were made again: how they are recorded, and how they order rows by key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from kraft_pipeline.tables.bykey import changes
from kraft_pipeline.tables.bykey.generations import FOLDER, Generations, stamped
from kraft_pipeline.tables.bykey.ordering import GENERATION, Within, newer
from kraft_pipeline.tables.replay import Replayed, replay
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.stores.opening import open_table
from kraft_pipeline.tables.stores.storage import Folder
from kraft_protocol.records.batch import build_batch
from tests.documents import table_document
from tests.feed import Feed

A, B, C = "0a" * 16, "0b" * 16, "0c" * 16


def recorded(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path / FOLDER)) for file in path.glob(f"{FOLDER}/*/*"))


def of(path: Path, now: dict[str, str], before: dict[str, str]) -> dict[str, int]:
    """The generations as a writer finds them that has just started."""
    return Generations(Folder(path)).of(now, lambda: before)


def test_topics_that_stay_leave_no_file(tmp_path: Path) -> None:
    assert of(tmp_path, {"t": A}, {}) == {}
    assert of(tmp_path, {"t": A, "u": B}, {"t": A}) == {}
    assert recorded(tmp_path) == []


def test_each_new_id_of_a_topic_is_the_next_generation(tmp_path: Path) -> None:
    assert of(tmp_path, {"t": B, "u": A}, {"t": A, "u": A}) == {"t": 1}
    assert of(tmp_path, {"t": B, "u": A}, {"t": A, "u": A}) == {"t": 1}, "the batch is repeated"
    assert of(tmp_path, {"t": C, "u": A}, {"t": B, "u": A}) == {"t": 2}
    assert recorded(tmp_path) == [f"t/{number:08d}-{topic_id}" for number, topic_id in enumerate((A, B, C))]


def test_a_topic_that_was_gone_meanwhile_has_its_generation(tmp_path: Path) -> None:
    """The position of the table no longer has the id."""
    assert of(tmp_path, {"u": A}, {"t": A, "u": A}) == {}
    assert of(tmp_path, {"t": A, "u": A}, {"u": A}) == {}, "it was left out of the specification for a while"
    assert of(tmp_path, {"t": B, "u": A}, {"u": A}) == {"t": 1}


def test_a_writer_reads_the_position_once_for_unchanged_topics(tmp_path: Path) -> None:
    found, calls = Generations(Folder(tmp_path)), list[int]()

    def before() -> dict[str, str]:
        calls.append(1)
        return {"t": A}

    for _ in range(3):
        assert found.of({"t": B}, before) == {"t": 1}
    assert len(calls) == 1


def test_the_later_generation_of_a_topic_is_newer() -> None:
    """An older release has written no generation: 0."""
    times = pa.array([2, 1, 1], pa.timestamp("us"))
    columns = {"topic": ["t", "t", "u"], "partition": [0, 0, 0], "offset": [9, 1, 1], "timestamp": times}
    rows = pa.table({**columns, GENERATION: pa.array([None, 1, 1], pa.int32())})
    order = changes.order_of(rows.schema)
    former, present, other = (rows.slice(place, 1) for place in range(3))
    assert newer(present, former, order).tolist() == [True]
    for within in (Within.OFFSET, Within.BOTH):
        assert newer(former, present, order._replace(within=within)).tolist() == [False]
    assert newer(former, other, order).tolist() == [True], "generations of two topics do not compare"


def test_rows_get_the_generation_of_their_topic_if_the_table_has_the_column() -> None:
    rows = pa.table({"topic": ["t", "u"], GENERATION: pa.nulls(2, pa.int32())})
    assert stamped(rows, "topic", {"t": 3})[GENERATION].to_pylist() == [3, 0]
    assert stamped(rows, "topic", {})[GENERATION].to_pylist() == [0, 0]
    plain = rows.drop_columns([GENERATION])
    assert stamped(plain, "topic", {"t": 3}) is plain


# Whole tables


def table(path: Path, kind: str, *, is_repaired: bool = False, key: str = "id") -> table_spec.TableSpec:
    names = ["n"] if key == "_key" else [key, "n"]
    value: dict[str, Any] = {"format": "json", "schema": dict.fromkeys(names, "long")}
    value |= {"evolve": "additive"} if is_repaired else {}
    keyed = {"path": str(path), "mode": "upsert", "key": [key], "format": kind}
    return table_spec.parse(table_document(engine={"mode": "inline"}, value=value, table=keyed))


def put(feed: Feed, topic_id: str, offset: int, minute: int, *texts: bytes | None) -> None:
    records = [(b"k", text) for text in texts]
    log = build_batch(records, base_offset=offset, timestamp=1_700_000_000_000 + 60_000 * minute)
    feed.put(offset, offset + len(texts), log, topic_id)


def values_of(given: table_spec.TableSpec) -> list[tuple[Any, ...]]:
    """The columns id, n and generation, in the order of id."""
    paths = [f"{given.path}/{file.path}" for file in open_table(given).live()]
    if not paths:
        return []
    found = duckdb.read_parquet(paths, union_by_name=True, hive_partitioning=False).order("n").to_arrow_table()
    rows = found.to_pylist()
    return sorted((row.get("id", row["_key"]), row["n"], row.get(GENERATION)) for row in rows)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_letter_of_the_present_topic_replaces_a_row_of_the_former(tmp_path: Path, kind: str) -> None:
    """Its offset is lower, because offsets begin at 0 in a topic that was made again, and it was left out."""
    given = table(tmp_path / "t", kind)
    feed = Feed(given)
    put(feed, A, 100, 0, b'{"id": 1, "n": 1}', b'{"id": 2, "n": 1}', b'{"id": 3, "n": 1}')
    assert GENERATION not in open_table(given).schema().names  # type: ignore[union-attr]
    put(feed, B, 0, 9, b'{"id": 1, "n": 2, "x": 1}', b'{"id": 2, "n": 2, "x": 1}', b'{"id": 2, "n": 3}')
    assert values_of(given) == [(1, 1, None), (2, 3, 1), (3, 1, None)]
    after = table(tmp_path / "t", kind, is_repaired=True)
    assert replay(after).left == 0
    assert values_of(given) == [(1, 2, 1), (2, 3, 1), (3, 1, None)]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_letters_of_a_former_topic_compare_with_its_rows_alone(tmp_path: Path, kind: str) -> None:
    """The producer's clock went back before offset 101, so its letter was left out as of an earlier time."""
    given = table(tmp_path / "t", kind)
    feed = Feed(given)
    put(feed, A, 100, 9, b'{"id": 1, "n": 1}', b'{"id": 2, "n": 1}')
    put(feed, A, 102, 0, b'{"id": 1, "n": 2, "x": 1}', b'{"id": 2, "n": 2, "x": 1}')
    put(feed, B, 0, 1, b'{"id": 2, "n": 3}')
    assert values_of(given) == [(1, 1, None), (2, 3, 1)]
    assert replay(table(tmp_path / "t", kind, is_repaired=True)).left == 0
    assert values_of(given) == [(1, 2, 0), (2, 3, 1)]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_letter_of_the_present_topic_is_newer_than_a_tombstone_of_the_former(tmp_path: Path, kind: str) -> None:
    given = table(tmp_path / "t", kind, key="_key")
    feed = Feed(given)
    put(feed, A, 100, 9, b'{"n": 1}')
    put(feed, A, 101, 10, None)
    assert values_of(given) == []
    put(feed, B, 0, 1, b'{"n": 2, "x": 1}')
    assert replay(table(tmp_path / "t", kind, is_repaired=True, key="_key")) == Replayed(1, 0)
    assert values_of(given) == [(b"k", 2, 1)]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_row_of_the_present_topic_replaces_a_row_of_the_former_with_a_later_time(tmp_path: Path, kind: str) -> None:
    given = table(tmp_path / "t", kind)
    feed = Feed(given)
    put(feed, A, 100, 9, b'{"id": 1, "n": 1}')
    put(feed, B, 0, 0, b'{"id": 1, "n": 2}')
    assert values_of(given) == [(1, 2, 1)]
    put(feed, B, 1, 1, b'{"id": 1, "n": 3}')
    again = Feed(given)
    again.begin()
    put(again, B, 2, 1, b'{"id": 1, "n": 4}')
    assert values_of(given) == [(1, 4, 1)]
