"""Encodes data files, and collects their statistics for commits: bounds of columns and numbers of nulls.

Readers skip files by these statistics. Texts and bytes have bounds of at most BOUND_LENGTH characters or bytes. A
longer minimum is cut, and a longer maximum is cut and raised, so that both remain bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kraft_pipeline.tables.stores.committer import Added

STATISTICS: Final = 32
"""Number of columns with statistics in the commit, as with Delta's writers."""
BOUND_LENGTH: Final = 32
"""Maximum characters of a text and bytes of a binary value in bounds, because each commit stores them."""
CHARACTER_MAX: Final = 0x10FFFF
SURROGATES: Final = range(0xD800, 0xE000)
"""Code points that no text can have."""


class EncodedFile(NamedTuple):
    """A data file and its statistics.

    Bounds are numbers, booleans, texts, bytes, decimals, and times as microseconds or days since 1970.
    """

    data: pa.Buffer
    rows: int
    minima: dict[str, Any]
    maxima: dict[str, Any]
    nulls: dict[str, int]

    def at(self, path: str, values: Mapping[str, str | None]) -> Added:
        """The file at its path, with its partition values."""
        return Added(path, self.data.size, self.rows, values, self.minima, self.maxima, nulls=self.nulls)


def parquet(rows: pa.Table, *, group: int | None = None) -> pa.Buffer:
    """Encode rows as Parquet. `group`: rows of a row group; None for Arrow's default."""
    out = pa.BufferOutputStream()
    pq.write_table(rows, out, compression="zstd", compression_level=1, row_group_size=group)
    return out.getvalue()


def encoded(rows: pa.Table, keys: Sequence[str] = ()) -> EncodedFile:
    """Encode rows as Parquet, with statistics of the `keys` and of the first STATISTICS columns that are not nested."""
    minima, maxima, nulls = dict[str, Any](), dict[str, Any](), dict[str, int]()
    data = parquet(rows)
    written = _texts_of(data)
    for name in dict.fromkeys([*keys, *rows.column_names[:STATISTICS]]):
        column = rows.column(name)
        if pa.types.is_nested(column.type):
            continue
        nulls[name] = column.null_count
        if column.null_count == rows.num_rows:
            continue
        least, most = _shortened(*written[name]) if name in written else _bounds(column)
        if most is not None:
            minima[name], maxima[name] = least, most
    return EncodedFile(data, rows.num_rows, minima, maxima, nulls)


def _texts_of(data: pa.Buffer) -> dict[str, tuple[Any, Any]]:
    """Minima and maxima of texts and bytes, which the file has: comparing all values again takes much longer.

    A column is left out if a group of rows has values without statistics, such as those above 4 KiB.
    """
    metadata = pq.read_metadata(pa.BufferReader(data))
    found: dict[str, tuple[Any, Any]] = {}
    for place in range(metadata.num_columns):
        column = metadata.schema.column(place)
        if column.physical_type != "BYTE_ARRAY" or column.path != column.name:  # a nested column has a longer path
            continue
        groups = [metadata.row_group(group).column(place).statistics for group in range(metadata.num_row_groups)]
        with_values = [group for group in groups if group is None or group.num_values]
        if with_values and all(group is not None and group.has_min_max for group in with_values):
            found[column.name] = min(group.min for group in with_values), max(group.max for group in with_values)
    return found


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """Minimum and maximum of a column that has values; None if readers could not rely on them."""
    comparable = _comparable(column)
    if comparable is None:
        return None, None
    least, most = pc.min_max(comparable).as_py().values()
    if isinstance(least, float):  # Java's order has -0.0 before 0.0, Arrow's has not
        least, most = least or -0.0, most or 0.0
    return _shortened(least, most)


def _shortened(least: Any, most: Any) -> tuple[Any, Any]:
    """Bounds of texts and bytes that are short enough; others as they are."""
    return (least[:BOUND_LENGTH], _raised(most)) if isinstance(least, str | bytes) else (least, most)


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The values to compare; None for types without an order, and for NaN and infinities.

    Engines disagree about the order of NaN, and JSON has no infinities.
    """
    kind = column.type
    if pa.types.is_date32(kind):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64()) if kind.unit == "us" else None
    if pa.types.is_floating(kind):
        return column if pc.all(pc.is_finite(column)).as_py() is not False else None
    simple = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_string, pa.types.is_binary)
    return column if any(is_kind(kind) for is_kind in simple) else None


def _raised(value: Any) -> Any:
    """The value, or a shorter value that is greater; None if no such value exists."""
    if len(value) <= BOUND_LENGTH:
        return value
    if isinstance(value, bytes):
        head = value[:BOUND_LENGTH].rstrip(b"\xff")
        return head[:-1] + bytes([head[-1] + 1]) if head else None
    head = value[:BOUND_LENGTH].rstrip(chr(CHARACTER_MAX))
    if not head:
        return None
    point = ord(head[-1]) + 1
    return head[:-1] + chr(SURROGATES.stop if point in SURROGATES else point)
