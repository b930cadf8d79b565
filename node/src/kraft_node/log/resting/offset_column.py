"""Offsets of many partitions of a topic in little memory: the content of a checkpoint file."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, MutableMapping
from typing import Final

_ABSENT: Final = -(2**63)
_SPREAD: Final = 8
"""An array takes 8 bytes per number, a dict at least 45 per entry: up to so many numbers may represent one entry."""
_FEW: Final = 8


class OffsetColumn(MutableMapping[int, int]):
    """Offsets by partition number, 8 bytes each: a dict entry with its two numbers takes 45 to 110.

    Numbers that are far above the count of entries are in a dict: a broker may have few partitions of a large topic.
    """

    __slots__ = ("_count", "_far", "_near")

    def __init__(self) -> None:
        self._near = array("q")
        self._far: dict[int, int] = {}
        self._count = 0
        """Entries in `_near`."""

    def __len__(self) -> int:
        return self._count + len(self._far)

    def __iter__(self) -> Iterator[int]:
        return iter(self.to_dict())

    def get(self, partition: int, default: int | None = None) -> int | None:  # type: ignore[override]
        """The offset of a partition."""
        if 0 <= partition < len(self._near):
            found = self._near[partition]
            if found != _ABSENT:
                return found
        return self._far.get(partition, default) if self._far else default

    def __getitem__(self, partition: int) -> int:
        found = self.get(partition)
        if found is None:
            raise KeyError(partition)
        return found

    def __contains__(self, partition: object) -> bool:
        return isinstance(partition, int) and self.get(partition) is not None

    def __setitem__(self, partition: int, offset: int) -> None:
        """Raises OverflowError for an offset that does not fit into 8 bytes."""
        near = self._near
        if partition < 0 or partition >= _SPREAD * (len(self) + _FEW):
            array("q", (offset,))
            if not 0 <= partition < len(near):
                self._far[partition] = offset
                return
        if partition >= len(near):
            near.extend([_ABSENT] * (partition + 1 - len(near)))
        if near[partition] == _ABSENT:
            self._count += 1
            self._far.pop(partition, None)
        near[partition] = offset

    def __delitem__(self, partition: int) -> None:
        if 0 <= partition < len(self._near) and self._near[partition] != _ABSENT:
            self._near[partition] = _ABSENT
            self._count -= 1
        else:
            del self._far[partition]

    def __repr__(self) -> str:
        return f"OffsetColumn({self.to_dict()})"

    def to_dict(self) -> dict[int, int]:
        """All entries."""
        entries = {partition: offset for partition, offset in enumerate(self._near) if offset != _ABSENT}
        entries.update(self._far)
        return entries
