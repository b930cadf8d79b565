"""The end offset of a replica's latest snapshot, sent to the active controller: soft state in a tagged field (KIP-631).

Our nodes add the field to their heartbeats and to their fetches of the metadata log. Nodes of Apache Kafka do not send
it and ignore it. `broker` and `server` send it; `controller` and `server` read it.
"""

from __future__ import annotations

from typing import Any, Final

SNAPSHOT_TAG: Final = 10_631
"""A tag far above the tags that Kafka assigns in order."""
_WIDTH: Final = 8


def add_snapshot_end(message: Any, end_offset: int) -> None:
    """Add the end offset of the sender's latest snapshot to a request; 0 without a snapshot."""
    message.unknown_tags = {SNAPSHOT_TAG: end_offset.to_bytes(_WIDTH, "big")}


def snapshot_end_of(message: Any) -> int | None:
    """The value that the sender added with `add_snapshot_end`; None if the field is missing."""
    value = (message.unknown_tags or {}).get(SNAPSHOT_TAG)
    return int.from_bytes(value, "big") if value is not None and len(value) == _WIDTH else None
