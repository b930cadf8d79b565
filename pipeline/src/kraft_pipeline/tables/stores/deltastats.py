"""Statistics of data files in the JSON of Delta's commits.

Times have milliseconds there, so maxima are rounded up. Bytes have no bounds.

If a column of the other types has values without bounds, deltalake compares its rows with null and skips the file. So
a file has bounds of all of these columns, or no bounds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from kraft_pipeline.tables.stores.committer import Added


def statistics(file: Added, schema: pa.Schema) -> str:
    """The statistics of a file of a table with `schema`."""
    least = {name: _bound(schema, name, value, up=False) for name, value in file.minima.items()}
    most = {name: _bound(schema, name, value, up=True) for name, value in file.maxima.items()}
    parts = {"numRecords": str(file.rows), "nullCount": _object({n: str(count) for n, count in file.nulls.items()})}
    wanted = [name for name, nulls in file.nulls.items() if nulls < file.rows and not _is_binary(schema, name)]
    if all(least.get(name) is not None and most.get(name) is not None for name in wanted):
        parts |= {"minValues": _object(least), "maxValues": _object(most)}
    return _object(parts)


def _is_binary(schema: pa.Schema, name: str) -> bool:
    return name in schema.names and pa.types.is_binary(schema.field(name).type)


def _object(values: Mapping[str, str | None]) -> str:
    """A JSON object of values in JSON; leaves out values that are None."""
    return "{" + ", ".join(f"{_text(name)}: {value}" for name, value in values.items() if value is not None) + "}"


def _text(value: str) -> str:
    """A text in JSON. deltalake misreads escaped characters above U+FFFF, so it is not escaped to ASCII."""
    return json.dumps(value, ensure_ascii=False)


def _bound(schema: pa.Schema, name: str, value: Any, *, up: bool) -> str | None:
    """A minimum or maximum in JSON; None if Delta has no bound of this type."""
    kind = schema.field(name).type if name in schema.names else pa.null()
    if isinstance(value, bytes):
        return None
    if isinstance(value, Decimal):
        return f"{value:f}"
    if not (pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
        return _text(value) if isinstance(value, str) else json.dumps(value)
    try:
        if pa.types.is_date32(kind):
            return _text((date(1970, 1, 1) + timedelta(days=value)).isoformat())
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=-(-value // 1000) if up else value // 1000)
    except OverflowError:  # before year 1 or after year 9999
        return None
    return _text(at.strftime(f"{at.year:04d}-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z")
