"""Findings of a scrub, as rows."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa

CRC: Final = "crc"
LENGTH: Final = "length"
MAGIC: Final = "magic"
OFFSET: Final = "offset"
GAP: Final = "gap"
EPOCH: Final = "epoch"
CUT: Final = "cut"
MISSING: Final = "missing"
DIFFERS: Final = "differs"
UNREADABLE: Final = "unreadable"
KINDS: Final = {
    CRC: "the CRC-32C does not fit the bytes",
    LENGTH: "the length of a batch leads nowhere",
    MAGIC: "the message format is unknown",
    OFFSET: "the base offset does not follow the batch before",
    GAP: "offsets are missing in the middle of the log",
    EPOCH: "the leader epoch differs from the checkpoint",
    CUT: "the log ends inside a batch below its high watermark",
    MISSING: "a batch of other replicas is missing",
    DIFFERS: "a batch differs from other replicas",
    UNREADABLE: "a file or a replica could not be read",
}
PER_SEGMENT_MAX: Final = 1000
"""Maximum findings of one segment; the last finding has the total number."""


class Finding(NamedTuple):
    """One damaged place. `position`: the byte in the file where the batch begins, -1 if no file was read."""

    topic: str
    partition: int
    broker: int
    directory: str
    """The log directory, or host:port of the broker."""
    segment: str
    """The file's name."""
    position: int
    base_offset: int
    last_offset: int
    kind: str
    """One of KINDS."""
    detail: str
    bits: list[tuple[int, int]]
    """The flipped bits, if they are known: byte in the file, bit in the byte (0 is the lowest)."""

    @property
    def where(self) -> str:
        """One line that names the place."""
        file = f"{self.directory}/{self.topic}-{self.partition}/{self.segment}" if self.segment else self.directory
        at = f" byte {self.position}" if self.position >= 0 else ""
        return f"{self.topic}-{self.partition} on broker {self.broker}: offset {self.base_offset}, {file}{at}"


_BIT: Final = pa.struct([pa.field("byte", pa.int64()), pa.field("bit", pa.int32())])
SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("broker", pa.int32()),
        pa.field("directory", pa.string()),
        pa.field("segment", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("base_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("bits", pa.list_(_BIT)),
    ]
)


def table(findings: list[Finding]) -> pa.RecordBatch:
    """The findings as Arrow, in SCHEMA."""
    rows = [{**f._asdict(), "bits": [{"byte": at, "bit": bit} for at, bit in f.bits]} for f in findings]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
