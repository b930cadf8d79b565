"""Rows filed by column values or by time: `date`, `hour(_timestamp)`, `country`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_pipeline.tables.errors import Bad
from kraft_pipeline.tables.spec import SpecError

FORMATS: Final = {"year": "%Y", "month": "%Y-%m", "date": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
"""Of times in UTC, as texts, so that they sort as they should in every engine."""
OF_COLUMN: Final = re.compile(rf"({'|'.join(FORMATS)})\((\w+)\)")
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{[\]^]""")
"""In names of folders, as Hive and Spark escape them: Spark reads no escaped UTF-8."""
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
YEAR_1: Final = -719_162
YEAR_10000: Final = 2_932_897
"""First days of years, since 1970."""
NAME_BYTES_MAX: Final = 255
"""Of a folder's name, on all file systems that matter."""


class By(NamedTuple):
    """One level: the `column` itself, or what `transform` makes of it, which is then a column called `name`."""

    name: str
    column: str
    transform: str | None


def parse(entries: Sequence[str], schema: pa.Schema) -> list[By]:
    """What `partitionBy` means for rows of `schema`. Raises SpecError for columns that are not there.

    What is not a field of a value has an underscore in front in tables that have fields of values.
    """
    own = "_" if "_timestamp" in schema.names else ""
    found = []
    for entry in entries:
        parts = OF_COLUMN.fullmatch(entry)
        if parts:
            by = By(f"{own}{parts[2].strip('_')}_{parts[1]}", parts[2], parts[1])
        elif entry in schema.names:
            by = By(entry, entry, None)
        elif entry in FORMATS:
            by = By(f"{own}{entry}", f"{own}timestamp", entry)
        else:
            raise SpecError(f"spec.table.partitionBy: {entry!r} is neither a column nor one of {', '.join(FORMATS)}(…)")
        if by.column not in schema.names:
            raise SpecError(f"spec.table.partitionBy: {entry!r}: there is no column {by.column!r}")
        kind = schema.field(by.column).type
        if by.transform and not pa.types.is_timestamp(kind):
            raise SpecError(f"spec.table.partitionBy: {entry!r}: {by.column!r} is no timestamp but {kind}")
        if not by.transform and pa.types.is_nested(kind):
            raise SpecError(f"spec.table.partitionBy: {entry!r} is {kind}")
        found.append(by)
    return found


def with_columns(schema: pa.Schema, levels: Sequence[By]) -> pa.Schema:
    """The table's schema: what transforms make comes last."""
    return pa.schema([*schema, *(pa.field(by.name, pa.string()) for by in levels if by.transform)])


def split(
    rows: pa.Table, levels: Sequence[By], *, whole: bool = False
) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """The rows of each combination of values, without the columns that these say unless they are wanted `whole`.

    Without the columns an empty text is null: no folder has it as a name, Delta's protocol and Spark take it for null.
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
    """The rows with what transforms make as columns."""
    for by in levels:
        if by.transform:
            rows = rows.append_column(by.name, _values(rows.column(by.column), by))
    return rows


def folder(values: Mapping[str, str | None], columns: Collection[str] = ()) -> str:
    """The folder of a combination, "" for none, as Hive names it, for a file that has these columns.

    Without an underscore in front: Arrow and those who read by it take such a folder for a hidden one.
    """
    found = []
    for name, text in values.items():
        found.append(_folder(name if name.removeprefix("_") in columns else name.removeprefix("_"), text))
    return "/".join(found)


def _folder(name: str, text: str | None) -> str:
    return f"{name}={NO_VALUE if text is None else _ESCAPED.sub(lambda found: f'%{ord(found[0]):02X}', text)}"


def unfiled(rows: pa.Table, entries: Sequence[str]) -> dict[int, Bad]:
    """The rows whose own values are to name folders and cannot, and why."""
    found: dict[int, Bad] = {}
    for entry in entries:
        found |= _untimely(rows, entry)
        kind = rows.schema.field(entry).type if entry in rows.column_names else pa.null()
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            encoded = rows.column(entry).combine_chunks().dictionary_encode()
            reasons = [_no_folder(entry, value) for value in encoded.dictionary.cast(pa.binary()).to_pylist()]
            wrong = [code for code, reason in enumerate(reasons) if reason]
            codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            found |= {
                int(place): Bad("partition.name", reasons[codes[place]])
                for place in np.flatnonzero(np.isin(codes, wrong))
            }
    return found


def _untimely(rows: pa.Table, entry: str) -> dict[int, Bad]:
    """The rows whose year has not four digits: no text of it sorts as it should, and Iceberg's library has none."""
    parts, names = OF_COLUMN.fullmatch(entry), rows.column_names
    name = parts[2] if parts else entry
    if entry in FORMATS and entry not in names:
        name = "_timestamp" if "_timestamp" in names else "timestamp"
    kind = rows.schema.field(name).type if name in names else pa.null()
    if not (pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
        return {}
    whole = rows.column(name).combine_chunks()
    numbers = whole.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    a_day = 1 if pa.types.is_date32(kind) else 86_400 * _PER_SECOND[kind.unit]
    late = pc.or_(pc.less(numbers, YEAR_1 * a_day), pc.greater_equal(numbers, YEAR_10000 * a_day))
    bad = Bad("partition.time", f"{name} is before year 1 or after year 9999; {entry} cannot name a partition")
    return dict.fromkeys(np.flatnonzero(np.asarray(late.fill_null(False))).tolist(), bad)


def _no_folder(name: str, value: bytes) -> str:
    try:  # Delta's library, which files the rows by key, escapes more
        long = len(f"{name}={quote(value.decode(), safe='-_.~ ')}") > NAME_BYTES_MAX
    except UnicodeDecodeError:
        return f"{name} is no text, which is to name a folder"
    return f"{name} is too long for the name of a folder" if long else ""


def _values(column: pa.ChunkedArray, by: By) -> Any:
    if by.transform:
        column = pc.strftime(column, format=FORMATS[by.transform])
    return column.combine_chunks().cast(pa.string())
