"""Fields that our nodes add to requests to the active controller, as tagged fields (KIP-482).

Nodes of Apache Kafka do not send them and ignore them. `broker` and `server` send them; `controller` and `server` read
them. All are soft state (KIP-631): no decision is wrong if a field is missing.
"""

from __future__ import annotations

from typing import Any, Final

SNAPSHOT_TAG: Final = 10_631
"""A tag far above the tags that Kafka assigns in order."""
RENEWAL_TAG: Final = 10_632
_WIDTH: Final = 8


def add_snapshot_end(message: Any, end_offset: int) -> None:
    """Add the end offset of the sender's latest snapshot to a request; 0 without a snapshot."""
    _add(message, SNAPSHOT_TAG, end_offset.to_bytes(_WIDTH, "big"))


def snapshot_end_of(message: Any) -> int | None:
    """The value that the sender added with `add_snapshot_end`; None if the field is missing."""
    value = (message.unknown_tags or {}).get(SNAPSHOT_TAG)
    return int.from_bytes(value, "big") if value is not None and len(value) == _WIDTH else None


def promise_renewal(message: Any) -> None:
    """Add to a broker's heartbeat that it sends the next one at once if its connection closes."""
    _add(message, RENEWAL_TAG, b"")


def promises_renewal(message: Any) -> bool:
    """Whether the sender called `promise_renewal`."""
    return RENEWAL_TAG in (message.unknown_tags or ())


def _add(message: Any, tag: int, value: bytes) -> None:
    message.unknown_tags = {**(message.unknown_tags or {}), tag: value}
