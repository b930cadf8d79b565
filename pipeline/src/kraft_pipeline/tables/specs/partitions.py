"""Partitioning of rows by column values or by time: `date`, `hour(_timestamp)`, `country`, `bucket(16, id)`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_pipeline.tables.errors import Bad
from kraft_pipeline.tables.specs.table_spec import SpecError
from kraft_pipeline.tables.specs.transforms import BUCKET, TRUNCATE, applied, takes

FORMATS: Final = {"year": "%Y", "month": "%Y-%m", "date": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
"""Formats of times in UTC. The texts sort in the order of time in every engine."""
_OF_COLUMN: Final = re.compile(rf"({'|'.join(FORMATS)})\((\w+)\)")
_NUMBERED: Final = re.compile(rf"({BUCKET}|{TRUNCATE})\(([1-9]\d{{0,8}}),\s*(\w+)\)")
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{[\]^]""")
"""Characters to escape in names of folders, as Hive and Spark do. Spark does not read escaped UTF-8."""
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
YEAR_1: Final = -719_162
YEAR_10000: Final = 2_932_897
"""First days of the years 1 and 10000, in days since 1970."""
NAME_BYTES_MAX: Final = 255
"""Limit of common file systems for a folder's name."""


class By(NamedTuple):
    """One partition level: the `column` itself, or the column `name`, which `transform` computes from it.

    `transform` is a key of FORMATS, or `bucket[16]` and `truncate[4]` as in Iceberg's metadata.
    """

    name: str
    column: str
    transform: str | None


class Computed(NamedTuple):
    """An entry of `partitionBy` that computes values from a column."""

    kind: str
    column: str
    transform: str

    @property
    def name(self) -> str:
        """The name of the computed column, without a leading underscore."""
        return f"{self.column.strip('_')}_{self.kind}"


def computed(entry: str) -> Computed | None:
    """Parse an entry such as `date(created)` or `bucket(16, id)`; None for another entry."""
    parts = _OF_COLUMN.fullmatch(entry)
    if parts:
        return Computed(parts[1], parts[2], parts[1])
    parts = _NUMBERED.fullmatch(entry)
    return Computed(parts[1], parts[3], f"{parts[1]}[{parts[2]}]") if parts else None


def parse(entries: Sequence[str], schema: pa.Schema) -> list[By]:
    """Parse `partitionBy` for rows of `schema`. Raises SpecError for missing columns and wrong types.

    In a table with fields of values, the other columns begin with an underscore, so `date` means `date(_timestamp)`.
    """
    own = "_" if "_timestamp" in schema.names else ""
    found: list[By] = []
    for entry in entries:
        parts = computed(entry)
        if parts:
            by = By(f"{own}{parts.name}", parts.column, parts.transform)
        elif entry in schema.names:
            by = By(entry, entry, None)
        elif entry in FORMATS:
            by = By(f"{own}{entry}", f"{own}timestamp", entry)
        else:
            known = f"{', '.join(FORMATS)}(…), {BUCKET}(16, …), {TRUNCATE}(4, …)"
            raise SpecError(f"spec.table.partitionBy: {entry!r} is neither a column nor one of {known}")
        if by.column not in schema.names:
            raise SpecError(f"spec.table.partitionBy: {entry!r}: column {by.column!r} does not exist")
        kind = schema.field(by.column).type
        if by.transform in FORMATS and not pa.types.is_timestamp(kind):
            raise SpecError(f"spec.table.partitionBy: {entry!r}: {by.column!r} is not a timestamp but {kind}")
        if parts and by.transform not in FORMATS and not takes(parts.kind, kind):
            raise SpecError(f"spec.table.partitionBy: {entry!r}: {parts.kind} does not apply to {kind}")
        if by.name in {other.name for other in found}:
            raise SpecError(f"spec.table.partitionBy: {entry!r} is the second {by.name}")
        if not by.transform and pa.types.is_nested(kind):
            raise SpecError(
                f"spec.table.partitionBy: {entry!r} has nested type {kind}; a table cannot be partitioned by it"
            )
        found.append(by)
    return found


def column_of(entry: str, schema: pa.Schema) -> str:
    """The column that an entry of `partitionBy` needs in rows of `schema`, which may lack it."""
    parts = computed(entry)
    if parts:
        return parts.column
    if entry in FORMATS and entry not in schema.names:
        return "_timestamp" if "_timestamp" in schema.names else "timestamp"
    return entry


def with_columns(schema: pa.Schema, levels: Sequence[By]) -> pa.Schema:
    """The table's schema: the columns that transforms compute come last, as strings."""
    return pa.schema([*schema, *(pa.field(by.name, pa.string()) for by in levels if by.transform)])


def split(
    rows: pa.Table, levels: Sequence[By], *, whole: bool = False
) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Yield each combination of partition values with its rows. The rows lack the partition columns unless `whole`.

    Without these columns an empty text becomes null: a folder's name cannot be empty, and Delta's protocol and Spark
    read it as null.
    """
    if not levels:
        yield {}, rows
        return
    columns = {by.name: _values(rows.column(by.column), by) for by in levels}
    if not whole:
        columns = {name: pc.if_else(pc.equal(texts, ""), None, texts) for name, texts in columns.items()}
    codes = np.zeros(rows.num_rows, np.int64)
    for texts in columns.values():
        encoded = texts.dictionary_encode(null_encoding="encode")
        codes = codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    _, begins = np.unique(codes[order], return_index=True)
    kept = [name for name in rows.column_names if whole or name not in {by.name for by in levels}]
    for places in np.split(order, begins[1:]):
        if len(places):
            values = {name: texts[int(places[0])].as_py() for name, texts in columns.items()}
            yield values, rows.select(kept).take(pa.array(places))


def with_values(rows: pa.Table, levels: Sequence[By]) -> pa.Table:
    """The rows with the columns that transforms compute appended."""
    for by in levels:
        if by.transform:
            rows = rows.append_column(by.name, _values(rows.column(by.column), by))
    return rows


def folder(values: Mapping[str, str | None], columns: Collection[str] = ()) -> str:
    """The Hive-style folder of a combination of values; "" without values. `columns`: the columns of the file.

    A leading underscore is removed, because Arrow ignores folders with it as hidden. It stays if the file has a column
    with the shorter name.
    """
    found = []
    for name, text in values.items():
        found.append(_folder(name if name.removeprefix("_") in columns else name.removeprefix("_"), text))
    return "/".join(found)


def _folder(name: str, text: str | None) -> str:
    return f"{name}={NO_VALUE if text is None else _ESCAPED.sub(lambda found: f'%{ord(found[0]):02X}', text)}"


def unfiled(rows: pa.Table, entries: Sequence[str]) -> dict[int, Bad]:
    """Rows that no partition can hold, by their index, and why."""
    found: dict[int, Bad] = {}
    for entry in entries:
        name = column_of(entry, rows.schema)
        if name not in rows.column_names:  # rows without fields, before a record shows the type of the column
            bad = Bad("partition.unknown", f"the record has no {name}, and no earlier record has shown its type")
            found |= dict.fromkeys(range(rows.num_rows), bad)
            continue
        parts = computed(entry)
        if parts is None or parts.transform in FORMATS:
            found |= _untimely(rows, entry, name)
        named = rows.column(name).combine_chunks() if name == entry else pa.nulls(0)
        if parts is not None and parts.kind == TRUNCATE:
            named = applied(parts.transform, rows.column(name).combine_chunks())
        if pa.types.is_string(named.type) or pa.types.is_binary(named.type):
            encoded = named.dictionary_encode()
            folder_name = entry if parts is None else parts.name
            reasons = [_no_folder(folder_name, value) for value in encoded.dictionary.cast(pa.binary()).to_pylist()]
            wrong = [code for code, reason in enumerate(reasons) if reason]
            codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            found |= {
                int(place): Bad("partition.name", reasons[codes[place]])
                for place in np.flatnonzero(np.isin(codes, wrong))
            }
    return found


def _untimely(rows: pa.Table, entry: str, name: str) -> dict[int, Bad]:
    """Rows with a year that does not have four digits: its text would not sort, and PyIceberg does not support it."""
    kind = rows.schema.field(name).type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
        return {}
    whole = rows.column(name).combine_chunks()
    numbers = whole.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    a_day = 1 if pa.types.is_date32(kind) else 86_400 * _PER_SECOND[kind.unit]
    late = pc.or_(pc.less(numbers, YEAR_1 * a_day), pc.greater_equal(numbers, YEAR_10000 * a_day))
    bad = Bad("partition.time", f"{name} is before year 1 or after year 9999; {entry} cannot name a partition")
    return dict.fromkeys(np.flatnonzero(np.asarray(late.fill_null(False))).tolist(), bad)


def _no_folder(name: str, value: bytes) -> str:
    try:  # delta-rs, which merges tables with a change feed, escapes more characters
        long = len(f"{name}={quote(value.decode(), safe='-_.~ ')}") > NAME_BYTES_MAX
    except UnicodeDecodeError:
        return f"{name} is not a string, so it cannot name a folder"
    return f"{name} is too long for the name of a folder" if long else ""


def _values(column: pa.ChunkedArray, by: By) -> Any:
    if by.transform in FORMATS:
        column = pc.strftime(column, format=FORMATS[by.transform])
    whole = column.combine_chunks()
    if by.transform and by.transform not in FORMATS:
        whole = applied(by.transform, whole)
    return whole.cast(pa.string())
