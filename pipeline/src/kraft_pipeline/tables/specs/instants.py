"""Parses times in ISO 8601 with a zone; milliseconds since 1970."""

from __future__ import annotations

import datetime
import re
from typing import Any, Final

import pyarrow as pa

INSTANT: Final = pa.timestamp("us", "UTC")
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_FRACTION: Final = re.compile(r"(\.\d{6})\d+")


def instant(text: str) -> datetime.datetime:
    """Parse a time to UTC, truncated to microseconds. Raises ValueError, also if the zone is missing."""
    found = datetime.datetime.fromisoformat(_FRACTION.sub(r"\1", text))
    if found.tzinfo is None:
        raise ValueError(f"{text[:40]!r} has no zone")
    try:
        return found.astimezone(datetime.UTC)
    except OverflowError:
        raise ValueError(f"{text[:40]!r} is beyond a timestamp") from None


def unix_ms(time: datetime.datetime) -> int:
    """Milliseconds since 1970, rounded down; UTC without a zone. A float of seconds would be a millisecond too low."""
    return ((time if time.tzinfo else time.replace(tzinfo=datetime.UTC)) - _EPOCH) // datetime.timedelta(milliseconds=1)


def instants(texts: pa.Array) -> Any:
    """As `instant` for an array of texts; null stays null. Returns timestamps of type INSTANT. Raises ValueError."""
    try:
        return texts.cast(INSTANT)
    except pa.ArrowInvalid:  # Arrow knows fewer forms
        return pa.array([None if text is None else instant(text) for text in texts.to_pylist()], INSTANT)
