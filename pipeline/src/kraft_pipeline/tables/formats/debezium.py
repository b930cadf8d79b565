"""Debezium's change events: the row of an event, its operation, and its position in the database's log.

An event is an envelope: `op` (c, u, d, or r for a read of a snapshot), the row `before` and `after`, and `source`. The
table gets the row `after`; for a deletion, the row `before`. It adds `_op`, `_source_time` and `_source_position`.

The position orders the changes of a row, independent of partitions and repeated events. It is a text of fixed form, so
that texts sort like positions:

- PostgreSQL: `lsn`. A change of a row waits for the commit of the change before it, so the LSNs of a row rise.
- MySQL, MariaDB: number of the binlog file, `pos`, `row`. An event with a GTID has no position. Its connector may
  follow another server with other file numbers, and all changes from there would look old.
- SQL Server, Db2: `commit_lsn`, `change_lsn`, `event_serial_no`.
- Oracle: `commit_scn`, `scn`, `ssn`.

Reads of a snapshot have no position either: a transaction that was open during the read has changes with lower
positions. The topic orders events without a position, because it has the changes of a row in their order.

Source: debezium.io/documentation/reference/stable/connectors, "Data change events".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kraft_pipeline.tables.errors import RecordError
from kraft_pipeline.tables.specs.table_spec import POSITION

OP: Final = "_op"
TIME: Final = "_source_time"
COLUMNS: Final = pa.schema(
    [pa.field(OP, pa.string()), pa.field(TIME, pa.timestamp("us", "UTC")), pa.field(POSITION, pa.string())]
)
"""The columns that an envelope adds to a row."""
OPERATIONS: Final = {"c": "after", "u": "after", "r": "after", "d": "before"}
"""Operation -> field with its row. Other operations (t, a truncated table; m, a message) have no row."""
DELETION: Final = "d"
READ: Final = "r"
DIGITS: Final = 20
"""Digits of a 64-bit number."""
_FILE: Final = re.compile(r".*\.(\d+)", re.DOTALL)


def operation(op: Any) -> str:
    """An event's operation. Raises RecordError if it has no row, or if the value is not an envelope."""
    if op is None:
        raise RecordError("debezium.envelope", "the value is not a Debezium change event: it has no field op")
    if not isinstance(op, str) or op not in OPERATIONS:
        raise RecordError("debezium.op", f"the operation {str(op)[:20]!r} has no row; {', '.join(OPERATIONS)} are")
    return op


def without_row(op: str, value: Any) -> RecordError:
    """Why an event with the row `value` cannot become a row of a table."""
    place = OPERATIONS[op]
    kind = "missing" if value is None else "a text, as MongoDB's connector writes it" if _text(value) else "no object"
    return RecordError("debezium.row", f"the event has the operation {op}, but its field {place} is {kind}")


def _text(value: Any) -> bool:
    return isinstance(value, str)


def marks(ops: Sequence[str], sources: Sequence[Any]) -> pa.Table:
    """The fields of envelopes, as COLUMNS."""
    known = [source if isinstance(source, Mapping) else {} for source in sources]
    positions = [None if op == READ else position(source) for op, source in zip(ops, known, strict=True)]
    columns = [pa.array(ops, pa.string()), pa.array([_time(one) for one in known], COLUMNS.field(TIME).type)]
    return pa.Table.from_arrays([*columns, pa.array(positions, pa.string())], schema=COLUMNS)


def position(source: Mapping[str, Any]) -> str | None:
    """The position of a change in its database's log; None if its connector or this event has no position."""
    match source.get("connector"):
        case "postgresql":
            return _number(source.get("lsn"))
        case "mysql" | "mariadb":
            return None if source.get("gtid") else _binlog(source)
        case "sqlserver" | "db2":
            parts = (source.get("commit_lsn"), source.get("change_lsn"))
            if not all(isinstance(part, str) and part for part in parts):
                return None
            return ",".join((*(str(part).lower() for part in parts), _number(source.get("event_serial_no")) or ""))
        case "oracle":
            commit, change = _number(source.get("commit_scn")), _number(source.get("scn"))
            return None if commit is None or change is None else f"{commit},{change},{_number(source.get('ssn')) or ''}"
    return None


def _binlog(source: Mapping[str, Any]) -> str | None:
    file = _FILE.fullmatch(str(source.get("file")))
    number, at = _number(file[1]) if file else None, _number(source.get("pos"))
    return None if number is None or at is None else f"{number},{at},{_number(source.get('row')) or ''}"


def _number(value: Any) -> str | None:
    """A number with leading zeros, so that texts sort like numbers. Numbers may be texts in events."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value)
    return text.zfill(DIGITS) if text.isascii() and text.isdigit() and len(text) <= DIGITS else None


def _time(source: Mapping[str, Any]) -> int | None:
    """The time in microseconds: `ts_us` since Debezium 2.6, otherwise `ts_ms`."""
    for name, factor in (("ts_us", 1), ("ts_ms", 1000)):
        text = _number(source.get(name))
        if text is not None and int(text) * factor < 1 << 63:
            return int(text) * factor
    return None
