"""UUIDs of topics, directories, incarnations and clusters: type, text form, and reserved UUIDs.

A UUID is its 16 big-endian bytes. Its text form is URL-safe base64 without padding, 22 characters
(org.apache.kafka.common.Uuid), never the form with dashes.

Offsets, epochs and node ids are plain ints. A separate type would be lost at each addition, and every sum on a hot path
would have to restore it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, NewType, Protocol

Uuid = NewType("Uuid", bytes)

UUID_SIZE: Final = 16
ZERO_UUID: Final = Uuid(bytes(16))
ONE_UUID: Final = Uuid(bytes(15) + b"\x01")
METADATA_TOPIC_ID: Final = ONE_UUID
METADATA_TOPIC_NAME: Final = "__cluster_metadata"

DIRECTORY_MIGRATING: Final = ZERO_UUID
DIRECTORY_UNASSIGNED: Final = ONE_UUID
DIRECTORY_LOST: Final = Uuid(bytes(15) + b"\x02")
RESERVED_DIRECTORY_IDS: Final = 100
"""Directory ids with a number below this are reserved (KIP-858)."""


def uuid_text(uuid: Uuid) -> str:
    """The 22 characters that Kafka prints and stores for a UUID."""
    return base64.urlsafe_b64encode(uuid).decode("ascii").rstrip("=")


def parse_uuid(text: str) -> Uuid:
    """The UUID of `text` (22 characters, padding allowed).

    Raises ValueError, which names the text, if it is not a UUID.
    """
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as e:
        raise ValueError(f"not a UUID: {text!r} ({e})") from None
    if len(raw) != UUID_SIZE:
        raise ValueError(f"not a UUID: {text!r} has {len(raw)} bytes, not {UUID_SIZE}")
    return Uuid(raw)


class RandomBytes(Protocol):
    """A source of randomness."""

    def random_bytes(self, count: int) -> bytes:
        """Exactly `count` bytes. Simulations derive them from their seed."""
        ...


def random_uuid(rng: RandomBytes) -> Uuid:
    """A version-4 UUID that is not reserved and has no dash at the beginning of its text, as in Kafka."""
    while True:
        raw = bytearray(rng.random_bytes(UUID_SIZE))
        raw[6] = (raw[6] & 0x0F) | 0x40
        raw[8] = (raw[8] & 0x3F) | 0x80
        uuid = Uuid(bytes(raw))
        if int.from_bytes(raw, "big") >= RESERVED_DIRECTORY_IDS and not uuid_text(uuid).startswith("-"):
            return uuid
