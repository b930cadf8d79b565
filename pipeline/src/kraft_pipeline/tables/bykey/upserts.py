"""Gathers the changes of a batch by key on executors. The driver sees only paths, bounds and counts.

Tasks have staged the rows of their ranges (`changes.STAGED`), sorted by key. A part is a range of keys. One task per
part reads its rows from all staged files, keeps the newest row of each key, and stages the result for the merge. Most
batches have one part. The bounds between parts come from samples of the files.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kraft_pipeline.tables.bykey import changes
from kraft_pipeline.tables.bykey.generations import stamped
from kraft_pipeline.tables.bykey.ordering import Order
from kraft_pipeline.tables.bykey.tombstones import Tombstones
from kraft_pipeline.tables.engines.tasks import FILE_BYTES
from kraft_pipeline.tables.schemas import aligned
from kraft_pipeline.tables.specs.partitions import By, with_values
from kraft_pipeline.tables.stores.committer import DELETED, Changes, Each, Part, stem
from kraft_pipeline.tables.stores.datafiles import parquet
from kraft_pipeline.tables.stores.intents import Work

PARTS_MAX: Final = 256
SAMPLES: Final = 200
"""Keys to sample from each file for the bounds of parts."""


@dataclass(frozen=True, slots=True)
class Gather:
    """Gathers the staged files of a batch; it is sent to executors."""

    work: Work
    files: tuple[str, ...]
    keys: tuple[str, ...]
    schema: pa.Schema
    """Schema of the table, including partition columns."""
    levels: tuple[By, ...]
    order: Order
    tombstones_s: float
    generations: Mapping[str, int] = field(default_factory=dict)
    """Generations above 0 of the topics of the rows, by name."""

    def changes(self, size: int, each: Each) -> Changes:
        """Return all changes in staged parts; `size`: their uncompressed bytes. Raises OSError, and as `each`."""
        if not self.files:
            rows = self.schema.append(pa.field(DELETED, pa.bool_())).empty_table()
            return Changes(rows, self.keys, self.order)
        count = min(PARTS_MAX, 1 + size // FILE_BYTES)
        bounds = self._bounds(count, each) if count > 1 else None
        ranges = [(0, None)] if bounds is None else [(n, bounds) for n in range(bounds.num_rows + 1)]
        found = each(self._part, ranges)
        return Changes(None, self.keys, self.order, tuple(found))

    def _bounds(self, count: int, each: Each) -> pa.Table | None:
        """The first keys of all parts but the first; None with too few different keys."""
        sample = pa.concat_tables(each(self._sample, self.files)).sort_by([(key, "ascending") for key in self.keys])
        places = np.unique(np.linspace(0, sample.num_rows, count, endpoint=False).astype(int)[1:])
        return changes.last(sample.take(pa.array(places)), self.keys) if len(places) else None

    def _sample(self, path: str) -> pa.Table:
        with self.work.storage.open(path) as source:
            rows = aligned(pq.ParquetFile(source).read(list(self.keys)), self._key_schema)
        if not rows.num_rows:
            return rows
        return rows.take(pa.array(np.unique(np.linspace(0, rows.num_rows - 1, SAMPLES).astype(int))))

    def _part(self, wanted: tuple[int, pa.Table | None]) -> Part:
        """Gather one part, by its number among `bounds`: stage its newest rows and store its tombstones."""
        number, bounds = wanted
        low = None if bounds is None or not number else bounds.slice(number - 1, 1).to_pylist()[0]
        high = None if bounds is None or number == bounds.num_rows else bounds.slice(number, 1).to_pylist()[0]
        names = {by.name for by in self.levels if by.transform}
        staged = pa.schema([*(f for f in self.schema if f.name not in names), pa.field(DELETED, pa.bool_())])
        parts = [staged.empty_table(), *(aligned(self._read(path, low, high), staged) for path in self.files)]
        tombstones = Tombstones(self.work.storage, self.tombstones_s)
        rows = stamped(pa.concat_tables(parts), self.order.topic, self.generations)
        every = tombstones.ranked(rows, self.keys, self.order)
        newest = changes.newest(every, self.keys, self.order)
        rows = with_values(newest, self.levels).select([*self.schema.names, DELETED])
        found = Changes(rows, self.keys, self.order)
        tombstones.remember(found, every)
        return self._put(tombstones.fresh(found).rows)

    def _read(self, path: str, low: dict[str, Any] | None, high: dict[str, Any] | None) -> pa.Table:
        """Read the rows of a file with low <= key < high. Reads only the keys of row groups without a match."""
        with self.work.storage.open(path) as source, pq.ParquetFile(source) as opened:
            if low is None and high is None:
                return opened.read()
            parts = []
            for group in range(opened.num_row_groups):
                keys = aligned(opened.read_row_group(group, list(self.keys)), self._key_schema)
                kept = np.ones(keys.num_rows, np.bool_)
                if low is not None:
                    kept &= self._from(keys, low)
                if high is not None:
                    kept &= ~self._from(keys, high)
                if kept.any():
                    parts.append(opened.read_row_group(group).filter(pa.array(kept)))
            return pa.concat_tables(parts) if parts else opened.schema_arrow.empty_table()

    def _from(self, rows: pa.Table, bound: dict[str, Any]) -> np.ndarray:
        """A mask of the rows with a key of at least `bound`, compared column by column."""

        def longer(found: Any, key: str) -> Any:
            value = pa.scalar(bound[key], rows.schema.field(key).type)
            equal, greater = pc.equal(rows.column(key), value), pc.greater(rows.column(key), value)
            return pc.or_(greater, pc.and_(equal, found))

        every = pa.chunked_array([pa.array(np.ones(rows.num_rows, np.bool_))])
        return np.asarray(reduce(longer, reversed(self.keys), every)).astype(np.bool_)

    @property
    def _key_schema(self) -> pa.Schema:
        return pa.schema([self.schema.field(key) for key in self.keys])

    def _put(self, rows: pa.Table | None) -> Part:
        assert rows is not None
        begin = f"{stem(self.work.app, self.work.epoch)}{self.work.name}"
        path = f"{changes.STAGED}/{begin}-{uuid.uuid4().hex}.parquet"
        self.work.intend([path])
        self.work.storage.write(path, parquet(rows))
        return Part(None, path)
