"""The hash of a group's topics: it changes if a subscribed topic is made, deleted, extended or moved to other racks."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from kraft_node.broker.coordinators.group.consumer.xxh3 import xxh3_64
from kraft_protocol.ids import Uuid

FORMAT: Final = b"\x00"
NO_TOPICS: Final = 0
_INT32: Final = struct.Struct("<i")
_SIGN: Final = 1 << 63


def topic_hash(topic_id: Uuid, name: str, racks: Iterable[Sequence[str]]) -> int:
    """The hash of one topic; `racks` has the known racks of the replicas of each partition."""
    parts = [FORMAT, topic_id[7::-1], topic_id[:7:-1], _text(name)]
    rows = []
    count = 0
    for number, names in enumerate(racks):
        count += 1
        rows.append(_INT32.pack(number))
        rows += map(_text, sorted(names))
    return xxh3_64(b"".join([*parts, _INT32.pack(count), *rows]))


def group_hash(topics: Iterable[tuple[str, int]]) -> int:
    """The signed hash of a group: of its existing topics' names and hashes."""
    hashes = [hashed for _, hashed in sorted(topics)]
    if not hashes:
        return NO_TOPICS
    combined = xxh3_64(struct.pack(f"<{len(hashes)}Q", *hashes))
    return combined - (_SIGN << 1) if combined & _SIGN else combined


def _text(text: str) -> bytes:
    raw = text.encode("utf-16-le", "surrogatepass")
    return raw + _INT32.pack(len(raw) // 2)
