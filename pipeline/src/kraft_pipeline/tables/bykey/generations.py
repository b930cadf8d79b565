"""Generations of topics: how often a topic was deleted and made again while a table by key read it.

Offsets begin at 0 in a topic that was made again, so the offsets of two topics with one name do not compare. Rows by
key store the generation of their topic in the column GENERATION. A table gets the column with the first generation
above 0; a row without a value has generation 0.

A topic id that followed another has a file `_kraft_topics/<topic>/<generation>-<id>`. So has the id before it, and the
id of a topic that is gone, because the position of the table forgets it. A file is written before the first batch of
its generation. This needs no transaction: the order of topics is a fact, even if the batch is never committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kraft_pipeline.tables.bykey.ordering import GENERATION
from kraft_pipeline.tables.specs.partitions import By
from kraft_pipeline.tables.stores.committer import Committer, retry_commit
from kraft_pipeline.tables.stores.storage import Storage

FOLDER: Final = "_kraft_topics"

Ids: TypeAlias = Mapping[str, str]
"""Topic ids in hexadecimal digits, by name."""


class Generations:
    """The generations that the table in `storage` has recorded. Methods raise OSError."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, dict[str, int]] | None = None
        """Topic -> id -> generation; None before the files are listed."""
        self._last: tuple[Ids, dict[str, int]] = {}, {}
        """The topics of the last batch, and their generations."""

    def known(self) -> Mapping[str, Mapping[str, int]]:
        """The recorded generations: topic -> id -> generation. Topics that were never made again are missing."""
        if self._known is None:
            self._known = {}
            for file in self._storage.list(FOLDER):
                topic, _, name = file.path.removeprefix(f"{FOLDER}/").partition("/")
                number, _, topic_id = name.partition("-")
                if number.isdecimal():  # names of drafts begin with a dot
                    self._known.setdefault(topic, {})[topic_id] = int(number)
        return self._known

    def of(self, topics: Ids, before: Callable[[], Ids]) -> dict[str, int]:
        """The generations above 0 of the topics that a batch reads; records new ones.

        `before` returns the topics in the table's position.
        """
        if topics == self._last[0]:
            return self._last[1]
        known = self.known()
        for topic, topic_id in before().items():
            if topics.get(topic) != topic_id:
                self._record(topic, topic_id)
        found = {}
        for topic, topic_id in topics.items():
            if topic in known:
                self._record(topic, topic_id)
                found[topic] = known[topic][topic_id]
        found = {topic: number for topic, number in found.items() if number}
        self._last = dict(topics), found
        return found

    def _record(self, topic: str, topic_id: str) -> None:
        assert self._known is not None, "the files have been listed"
        ids = self._known.setdefault(topic, {})
        if topic_id not in ids:
            number = 1 + max(ids.values(), default=-1)
            self._storage.create(f"{FOLDER}/{topic}/{number:08d}-{topic_id}", b"{}")
            ids[topic_id] = number


def widened_by(
    table: Committer, generations: Mapping[str, int], columns: pa.Schema, levels: Sequence[By]
) -> pa.Schema | None:
    """The table's schema, with GENERATION if a batch with these generations needs the column: adds it to the table.

    `columns` and `levels` are as in `Committer.create`. Raises OSError, ConflictError.
    """
    schema = table.schema()
    if schema is None or not generations or GENERATION in schema.names:
        return schema
    wider = columns.append(pa.field(GENERATION, pa.int32()))
    retry_commit(lambda: table.create(wider, levels))
    return table.schema()


def stamped(rows: pa.Table, topic: str, generations: Mapping[str, int]) -> pa.Table:
    """Rows with their generation, if they have the column. `topic` is the column with the topic's name."""
    if GENERATION not in rows.column_names:
        return rows
    place = rows.schema.get_field_index(GENERATION)
    names, numbers = pa.array(list(generations), pa.string()), pa.array(list(generations.values()), pa.int32())
    found = numbers.take(pc.index_in(rows.column(topic).combine_chunks().cast(pa.string()), value_set=names))
    return rows.set_column(place, rows.schema.field(place), pc.fill_null(found, 0))
