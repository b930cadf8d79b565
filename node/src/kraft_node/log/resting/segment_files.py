"""The open files of one segment: its .log and its .index.

A segment refers to a file only while the `FileCache` keeps it open. So a segment at rest holds neither a handle nor
the ends of its latest batches, for any number of segments.
"""

from __future__ import annotations

from typing import Protocol

from kraft_node.base.env import File
from kraft_node.log import names
from kraft_node.log.log_dir import LogDir
from kraft_node.log.segments.files import NO_ENDS, Handle


class Owner(Protocol):
    """The interface of a log for its segments."""

    @property
    def path(self) -> str:
        """The directory with the log's files; a rename changes it."""
        ...

    @property
    def dir(self) -> LogDir:
        """The log directory, with the environment and the cache of open files."""
        ...

    @property
    def index_interval_bytes(self) -> int:
        """The bytes of log after which a segment adds an index entry."""
        ...

    def indexed(self, position: int) -> None:
        """The index entries are on disk up to the batch at `position`, the last batch in the segment."""


class SegmentFiles:
    """The part of a segment that opens and closes its files."""

    __slots__ = ("base", "handle", "index_handle", "owner", "retired", "size")

    def __init__(self, owner: Owner, base: int, size: int) -> None:
        self.owner = owner
        self.base = base
        self.size = size
        self.handle: Handle | None = None
        """The .log file while it is open, with the ends of its latest batches."""
        self.index_handle: Handle | None = None
        """The .index file while it is open."""
        self.retired = False
        """Whether each use opens the files anew: the log is closed, or the segment was dropped."""

    def path(self, suffix: str) -> str:
        """The path of one of the segment's files."""
        return f"{self.owner.path}/{self.base:020d}{suffix}"

    def file(self) -> File:
        """The .log file, open. Raises OSError."""
        handle = self.handle
        if handle is not None and handle.file is not None:
            handle.used = True
            return handle.file
        return self.open_log(create=not self.size)

    def open_log(self, *, create: bool) -> File:
        """Open the .log file, which is not open. Raises OSError."""
        files, path = self.owner.dir.files, self.path(names.LOG)
        if self.retired:
            return files.open_once(path, create=create)
        handle = self.handle = files.open(self, path, create=create)
        assert handle.file is not None, "law: the file that was opened last is not closed first"
        return handle.file

    def index_file(self) -> File:
        """The .index file, open. Raises OSError."""
        handle = self.index_handle
        if handle is not None and handle.file is not None:
            handle.used = True
            return handle.file
        files, path = self.owner.dir.files, self.path(names.INDEX)
        if self.retired:
            return files.open_once(path)
        handle = self.index_handle = files.open(self, path)
        assert handle.file is not None, "law: the file that was opened last is not closed first"
        return handle.file

    def closed(self, handle: Handle) -> None:
        """A file of this segment was closed."""
        if handle is self.handle:
            self.handle = None
        elif handle is self.index_handle:
            self.index_handle = None

    @property
    def ends(self) -> dict[int, int]:
        """Positions by offset where the latest batches end; empty unless the .log file is open."""
        handle = self.handle
        return NO_ENDS if handle is None else handle.ends

    def forget_ends(self) -> None:
        """Forget the known ends, because they are wrong or readers no longer need them."""
        if self.handle is not None:
            self.handle.ends = NO_ENDS

    def drop_index(self) -> None:
        """Close the .index file: it was changed."""
        if self.index_handle is not None:
            self.owner.dir.files.drop(self.index_handle)

    def release(self) -> None:
        """Drop the references to open files."""
        if self.handle is not None:
            self.owner.dir.files.drop(self.handle)
        self.drop_index()

    def retire(self) -> None:
        """Drop the references to open files for good; current readers keep the file open until they are done."""
        self.release()
        self.retired = True
