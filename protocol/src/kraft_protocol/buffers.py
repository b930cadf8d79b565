"""Bytes in memory and bytes in files, as messages carry them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class SlicedFile(Protocol):
    """The open file of a slice. Every method may raise OSError."""

    @property
    def path(self) -> str:
        """The path at the opening, for messages and for the choice of a lane. A rename does not change it."""
        ...

    def pread(self, position: int, length: int) -> bytes:
        """The bytes at `position`; fewer than `length` only at the end of the file."""

    def fileno(self) -> int:
        """The descriptor for sendfile; -1 if it does not exist (simulated files)."""


@dataclass(slots=True, frozen=True)
class FileSlice:
    """Bytes in a file that are sent without being read: the node passes them to sendfile.

    Stands for a records field in a response. The file may be renamed or unlinked meanwhile. It stays open until the
    slice is sent, because the slice references `file`.
    """

    file: SlicedFile
    position: int
    length: int

    def read(self) -> bytes:
        """The bytes, for tests, simulation and connections without sendfile."""
        return self.file.pread(self.position, self.length)
