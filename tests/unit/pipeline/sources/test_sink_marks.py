"""The marks of the sink's transactions, against a group that forgets the offsets of deleted topics."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kraft_pipeline.sinks import transactions
from kraft_pipeline.sinks.options import parse_sink
from kraft_pipeline.sinks.transactions import Unit, write_once
from kraft_protocol.client.transactions import StoredOffset

OPTIONS = parse_sink({"kafka.bootstrap.servers": "a:1", "kafka.transactional.id": "x"}, ["value", "topic"])


class Group:
    """The committed offsets of a group, and the transactions that commit them."""

    def __init__(self) -> None:
        self.offsets = dict[str, StoredOffset]()
        self.written = 0

    def transaction(self, *_: Any, **__: Any) -> Group:
        return self

    def store(self, _: str, offsets: list[StoredOffset]) -> None:
        self.offsets |= {one.key[0]: one for one in offsets}

    def commit(self) -> None:
        self.written += 1


class Writer:
    """Counts rows and their topics."""

    def __init__(self, *_: Any) -> None:
        self.rows, self.topics = 0, set[str]()

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self.topics |= set(batch.column("topic").to_pylist())

    def close(self) -> None: ...


@pytest.mark.parametrize("deleted", ["a", "b"])
def test_rows_are_not_repeated_after_one_of_their_topics_was_deleted(
    monkeypatch: pytest.MonkeyPatch, deleted: str
) -> None:
    """The mark was an offset of the last topic alone, and brokers delete it with the topic."""
    group, cluster = Group(), Any
    monkeypatch.setattr(transactions, "ClientTransaction", group.transaction)
    monkeypatch.setattr(transactions, "stored_offsets", lambda *_: list(group.offsets.values()))
    monkeypatch.setattr(transactions, "RowWriter", Writer)
    rows = pa.RecordBatch.from_pydict({"topic": ["a", "b"], "value": [b"1", b"2"]})
    assert write_once(cluster, OPTIONS, iter([rows]), Unit("q", 0, 0)) == 2  # type: ignore[arg-type]
    del group.offsets[deleted]
    assert write_once(cluster, OPTIONS, iter([rows]), Unit("q", 0, 0)) == 2  # type: ignore[arg-type]
    assert group.written == 1
