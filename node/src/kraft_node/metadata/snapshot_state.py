"""Where a replica's latest snapshot ends, as it tells the active controller: soft state in a tagged field (KIP-631).

Our nodes add the field to their heartbeats and to their fetches of the metadata log; nodes of Apache Kafka neither send
it nor mind it. Used by `broker` and `server`, which send, and by `controller` and `server`, which are told.
"""

from __future__ import annotations

from typing import Any, Final

SNAPSHOT_TAG: Final = 10_631
"""Far from the tags that Kafka gives out in order."""
_WIDTH: Final = 8


def tell_snapshot(message: Any, end_offset: int) -> None:
    """Add to a request where the sender's latest snapshot ends; 0 when it has none."""
    message.unknown_tags = {SNAPSHOT_TAG: end_offset.to_bytes(_WIDTH, "big")}


def told_snapshot(message: Any) -> int | None:
    """What `tell_snapshot` of the sender said; None when it said nothing."""
    value = (message.unknown_tags or {}).get(SNAPSHOT_TAG)
    return int.from_bytes(value, "big") if value is not None and len(value) == _WIDTH else None
