"""Reads the topics of a consumer's subscription, the only part of a member's metadata that a broker reads."""

from __future__ import annotations

import struct

_COUNT_AND_VERSION = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """The topics of a ConsumerProtocolSubscription of any version; None if it is not one.

    All versions begin with an int16 version and an array of strings; the broker ignores the rest.
    """
    try:
        version, count = _COUNT_AND_VERSION.unpack_from(metadata, 0)
        if version < 0 or count < 0 or count * _LENGTH.size > len(metadata):
            return None
        position = _COUNT_AND_VERSION.size
        topics = set()
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            end = position + length
            if length < 0 or end > len(metadata):
                return None
            topics.add(metadata[position:end].decode("utf-8"))
            position = end
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
