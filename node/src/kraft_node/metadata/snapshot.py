"""Serializes an image as records, in slices, in the order of Apache Kafka's snapshots (KIP-630).

A `SnapshotCursor` shows the image as it was when the cursor was made, even if the image changes between slices. A part
that the cursor has not visited is copied when it changes (the rows of a topic; other cells are immutable). The memory
is proportional to the changes made meanwhile, plus one pointer for each topic. Close the cursor at the end or earlier;
it is its own context manager.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from kraft_node.metadata.bulk import RowWriter
from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.kinds import SECTION_NAMES, SNAPSHOT_KINDS, kind_of
from kraft_node.metadata.kinds.topics import PARTITION
from kraft_node.metadata.records import encode_record

SLICE_RECORDS: Final = 1000
"""Default number of records in a slice."""


class SnapshotCursor:
    """The records of one image at one moment. `offset` and `epoch` name the last record that it contains."""

    __slots__ = (
        "_frozen",
        "_image",
        "_iterator",
        "_values",
        "epoch",
        "metadata_level",
        "offset",
        "timestamp_ms",
        "topics",
        "writer",
    )

    def __init__(self, image: MetadataImage) -> None:
        self._image: MetadataImage | None = image
        self.offset = image.offset
        self.epoch = image.epoch
        self.timestamp_ms = image.timestamp_ms
        self.metadata_level = image.metadata_level
        self._frozen = {name: image.section(name).freeze() for name in SECTION_NAMES}
        self.topics = image.topics.freeze()
        self._iterator = self._records()
        self._values: Iterator[bytes] | None = None
        self.writer: RowWriter | None = None
        """Encodes partitions in bulk, if bytes are wanted."""

    def __enter__(self) -> SnapshotCursor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def next_slice(self, count: int = SLICE_RECORDS) -> list[Any]:
        """The next records, at most `count`; empty at the end."""
        records = []
        for record in self._iterator:
            records.append(record)
            if len(records) >= count:
                break
        return records

    def next_values(self, count: int = SLICE_RECORDS) -> list[bytes]:
        """The next records encoded at the image's metadata.version; empty at the end. Instead of `next_slice`."""
        if self._values is None:
            self.writer = RowWriter(PARTITION.version(self.metadata_level))
            self._values = self._encoded()
        return list(islice(self._values, count))

    def __iter__(self) -> Iterator[Any]:
        return self._iterator

    def close(self) -> None:
        """End the cursor: the image keeps no old values for it any more. Harmless if it is closed already."""
        image, self._image = self._image, None
        if image is None:
            return
        for name, frozen in self._frozen.items():
            image.section(name).thaw(frozen)
        image.topics.thaw(self.topics)

    def cells(self, name: str) -> Iterator[tuple[Any, Any]]:
        """The cells of a keyed section."""
        frozen = self._frozen[name]
        for key in frozen.keys:
            yield key, frozen.value(key)

    def _encoded(self) -> Iterator[bytes]:
        level = self.metadata_level
        for record in self._iterator:
            yield record if isinstance(record, bytes) else encode_record(record, kind_of(record).version(level))

    def _records(self) -> Iterator[Any]:
        """Records; partitions as bytes if a writer for them is given."""
        for kind in SNAPSHOT_KINDS:
            assert kind.snapshot is not None, "law: these kinds write snapshots"
            yield from kind.snapshot(self)
