"""Debezium's change events: which row an event is about, what happened to it, and where it lies in its database's log.

An event is an envelope: `op` (c, u, d, or r for a read of a snapshot), the row `before` and `after`, and `source`. The
row of a table is `after`, of a deletion `before`. Beside it go `_op`, `_source_time` and `_source_position`.

The position of a change orders the changes of one row, whatever partitions and repetitions they came by. It is text of
a fixed form, so that texts sort as positions do:

- PostgreSQL: `lsn`. A change of a row waits for the commit of the change before it, so the LSNs of a row rise.
- MySQL, MariaDB: number of the binlog file, `pos`, `row`. An event with a GTID has no position: its connector may
  follow another server, whose files count anew, and all changes from there would be taken for old ones.
- SQL Server, Db2: `commit_lsn`, `change_lsn`, `event_serial_no`.
- Oracle: `commit_scn`, `scn`, `ssn`.

Reads of a snapshot have no position either: a transaction that was open then has changes with lower ones. Events
without a position are ordered by the topic, which has the changes of a row in their order.

Source: debezium.io/documentation/reference/stable/connectors, "Data change events".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kraft_pipeline.tables.errors import RecordError
from kraft_pipeline.tables.spec import POSITION

OP: Final = "_op"
TIME: Final = "_source_time"
COLUMNS: Final = pa.schema(
    [pa.field(OP, pa.string()), pa.field(TIME, pa.timestamp("us", "UTC")), pa.field(POSITION, pa.string())]
)
"""What an envelope adds to a row."""
OPERATIONS: Final = {"c": "after", "u": "after", "r": "after", "d": "before"}
"""Operation -> where its row is. Others (t, a truncated table; m, a message) are about no row."""
DELETION: Final = "d"
READ: Final = "r"
DIGITS: Final = 20
"""Of a number of 64 bits."""
_FILE: Final = re.compile(r".*\.(\d+)", re.DOTALL)


def operation(op: Any) -> str:
    """An event's operation. Raises RecordError if it is about no row, or if the value is no envelope."""
    if op is None:
        raise RecordError("debezium.envelope", "the value is no change event of Debezium: it has no field op")
    if not isinstance(op, str) or op not in OPERATIONS:
        raise RecordError("debezium.op", f"the operation {str(op)[:20]!r} is about no row; {', '.join(OPERATIONS)} are")
    return op


def without_row(op: str, value: Any) -> RecordError:
    """Why an event whose row is `value` cannot be one of a table."""
    place = OPERATIONS[op]
    kind = "missing" if value is None else "a text, as MongoDB's connector writes it" if _text(value) else "no object"
    return RecordError("debezium.row", f"the event has the operation {op}, but its field {place} is {kind}")


def _text(value: Any) -> bool:
    return isinstance(value, str)


def marks(ops: Sequence[str], sources: Sequence[Any]) -> pa.Table:
    """What the envelopes of some events say, as COLUMNS."""
    known = [source if isinstance(source, Mapping) else {} for source in sources]
    positions = [None if op == READ else position(source) for op, source in zip(ops, known, strict=True)]
    columns = [pa.array(ops, pa.string()), pa.array([_time(one) for one in known], COLUMNS.field(TIME).type)]
    return pa.Table.from_arrays([*columns, pa.array(positions, pa.string())], schema=COLUMNS)


def position(source: Mapping[str, Any]) -> str | None:
    """Where a change lies in its database's log; None if its connector or this event does not tell."""
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
    """With zeros in front, as texts sort; numbers may come as texts."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value)
    return text.zfill(DIGITS) if text.isascii() and text.isdigit() and len(text) <= DIGITS else None


def _time(source: Mapping[str, Any]) -> int | None:
    """Microseconds; `ts_us` since Debezium 2.6, `ts_ms` of all."""
    for name, factor in (("ts_us", 1), ("ts_ms", 1000)):
        text = _number(source.get(name))
        if text is not None and int(text) * factor < 1 << 63:
            return int(text) * factor
    return None
