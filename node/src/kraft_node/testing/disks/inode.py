"""The contents of a file on a simulated disk: in memory, durable, and what lies between."""

from __future__ import annotations

import random
from typing import Final

SECTOR: Final = 512


class Inode:
    """A file's contents: as the process sees them, the durable state, and the pending changes in order."""

    __slots__ = ("data", "dirty", "durable", "is_cold", "mtime_ms", "never_waits", "pending")

    def __init__(self) -> None:
        self.dirty = 0
        """Bytes written since the last write-back."""
        self.never_waits = False
        """Whether the last write to it is one that never waits for the disk: no record of a producer or leader."""
        self.is_cold = False
        """Whether the kernel has evicted its bytes from memory; a read that waits brings them back."""
        self.data = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []
        """Unsynced changes: (position, bytes) for a write, (size, None) for a truncation."""
        self.mtime_ms = 0

    def write(self, position: int, raw: bytes) -> None:
        """Write `raw` at byte `position` for the process; the bytes are pending until `sync`. A gap reads as zeros."""
        apply(self.data, position, raw)
        self.pending.append((position, raw))

    def truncate(self, size: int) -> None:
        """Set the length to `size` bytes for the process, pending until `sync`. A larger size adds zeros."""
        apply(self.data, size, None)
        self.pending.append((size, None))

    def sync(self) -> None:
        """Make all pending changes durable, in their order."""
        for position, raw in self.pending:
            apply(self.durable, position, raw)
        self.pending.clear()

    def lose_power(self, rng: random.Random) -> None:
        """Decide which unsynced writes survive; afterwards everything is durable."""
        self.dirty = 0
        mode = rng.choice(("kept", "lost", "some"))
        for position, raw in self.pending:
            if mode == "lost":
                break
            if mode == "kept" or raw is None or len(raw) <= SECTOR:
                if mode == "kept" or rng.random() < 0.5:
                    apply(self.durable, position, raw)
                continue
            sectors = [raw[i : i + SECTOR] for i in range(0, len(raw), SECTOR)]
            for number, sector in enumerate(sectors):
                if rng.random() < 0.7:
                    apply(self.durable, position + number * SECTOR, sector)
        self.pending.clear()
        self.data = bytearray(self.durable)


def apply(data: bytearray, position: int, raw: bytes | None) -> None:
    """Write `raw` at `position`; without `raw`, set the length to `position`. Zeros fill a gap before it."""
    if len(data) < position:
        data.extend(bytes(position - len(data)))
    if raw is None:
        del data[position:]
    else:
        data[position : position + len(raw)] = raw
