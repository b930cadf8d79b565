"""A table of change events never goes back while a connector is killed and sends events again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.maintenance import care
from kraft_pipeline.tables.specs import table_spec
from kraft_protocol.records.batch import build_batch
from tests.debezium import event, key
from tests.documents import table_document
from tests.feed import Feed
from tests.tiers import seeds

Change = list[tuple[bytes, bytes | None]]
KEYS, CHANGES, KILLS = 3, 14, 4
TIME_MS = 1_700_000_000_000


class Database:
    """A history of changes of a table, each with its records in the topic and the rows after it."""

    def __init__(self, chance: random.Random) -> None:
        rows: dict[int, str] = {}
        self.changes: list[Change] = []
        self.states: list[dict[int, str]] = []
        for number in range(CHANGES):
            lsn, at = 100 + number, chance.randrange(KEYS)
            before = {"id": at, "name": rows.get(at)}
            if at in rows and chance.random() < 0.5:
                del rows[at]
                records: Change = [(key(at), event("d", before, None, lsn=lsn)), (key(at), None)]
            else:
                op = "u" if at in rows else "c"
                rows[at] = f"n{number}"
                records = [(key(at), event(op, before, {"id": at, "name": rows[at]}, lsn=lsn))]
            self.changes.append(records)
            self.states.append(dict(rows))

    def sent(self, chance: random.Random) -> list[int]:
        """Numbers of changes in the order of the topic: each kill makes the connector begin again earlier."""
        found, at = list[int](), 0
        kills = sorted(chance.sample(range(2, CHANGES), KILLS))
        for kill in kills:
            found += range(at, kill)
            at = chance.randrange(max(0, kill - 6), kill)
        return [*found, *range(at, CHANGES)]


def rows_of(path: Path) -> dict[int, str]:
    found = duckdb.from_arrow(DeltaTable(path).to_pyarrow_table()).project("id, name").fetchall()
    assert len({one for one, _ in found}) == len(found)
    return dict(found)


@pytest.mark.parametrize("seed", seeds(range(12), everyday=4))
def test_repeated_events_do_not_change_rows(tmp_path: Path, seed: int) -> None:
    chance, sections = random.Random(seed), dict[str, Any]()
    sections["value"] = {"format": "json", "envelope": "debezium", "schema": {"id": "long", "name": "string"}}
    sections["table"] = {"path": str(tmp_path / "t"), "mode": "upsert", "key": ["id"]}
    given = table_spec.parse(table_document(name="customers", engine={"mode": "inline"}, **sections))
    database, feed = Database(chance), Feed(given)
    left, offset, newest = database.sent(chance), 0, -1
    while left:
        count = chance.randrange(1, 5)
        some, left = left[:count], left[count:]
        records = [one for number in some for one in database.changes[number]]
        log = build_batch(records, base_offset=offset, timestamp=TIME_MS + offset)
        feed.put(offset, offset + len(records), log)
        offset, newest = offset + len(records), max(newest, *some)
        assert rows_of(tmp_path / "t") == database.states[newest], (some, left)
        if chance.random() < 0.2:
            care(given, InlineEngine())
