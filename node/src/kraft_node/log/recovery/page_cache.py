"""After a kill, the process's writes are still in the page cache: only the tail of a log needs a scan.

A kill cuts off at most the last write of each log. So if the machine has not rebooted since, every segment except the
last is complete. The last segment is complete up to its last index entry. `walk_start` checks for the leftovers of a
crash between two file operations (gaps between segments, a wrong index). It finds the leader epochs by bisection over
the index. A power loss, a reboot or a copy of the directory leads to the full scan of `opening`.

`BootMark` stores the boot on which all logs of a directory were known to be undamaged.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Final

from kraft_node.base.env import read_file
from kraft_node.log import names
from kraft_node.log.config import LONG_MAX
from kraft_node.log.segments.files import write_file
from kraft_node.log.segments.index import ENTRY, ENTRY_SIZE
from kraft_node.log.segments.scan import BadBatch, batches
from kraft_protocol.records.batch import HEADER, HEADER_SIZE, MAGIC, BatchHeader

if TYPE_CHECKING:
    from kraft_node.base.env import Disk, File
    from kraft_node.log.checkpoints.leader_epochs import LeaderEpochs
    from kraft_node.log.log import Log
    from kraft_node.log.segments.segment import Segment

VERSION: Final = 0


class BootMark:
    """The file `.kraft_boot` of one log directory: the boot, and the directory's identity, which a copy does not have.

    It never needs an fsync. A mark that a power loss restores names an earlier boot.
    """

    __slots__ = ("_boot_id", "_directory", "_disk")

    def __init__(self, disk: Disk, directory: str, boot_id: str | None) -> None:
        self._disk = disk
        self._directory = directory
        self._boot_id = boot_id

    @property
    def _path(self) -> str:
        return f"{self._directory}/{names.BOOT}"

    def is_current(self) -> bool:
        """Whether all logs here were undamaged on this boot. False if the machine has no boot id. Raises OSError."""
        if self._boot_id is None:
            return False
        try:
            found = json.loads(read_file(self._disk, self._path))
        except (FileNotFoundError, ValueError):
            return False
        return bool(found == self._content())

    def write(self) -> None:
        """All logs in the directory are undamaged from now on until the machine goes down. Raises OSError."""
        if self._boot_id is not None:
            write_file(self._disk, self._path, 0, json.dumps(self._content()).encode())

    def remove(self) -> None:
        """Some logs are not known to be undamaged. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove(self._path)

    def _content(self) -> dict[str, object]:
        return {"version": VERSION, "bootId": self._boot_id, "directory": self._disk.identity(self._directory)}


def walk_start(log: Log, *, epochs_known: bool) -> int | None:
    """The offset in the last segment from which the scan must begin: its last index entry, or the recovery point.

    None if the whole part above the recovery point must be scanned, because something does not fit. Puts the leader
    epochs below that offset into `log.leader_epochs`. Raises OSError.
    """
    bases = log.segment_bases
    first = log.segment_number(log.recovery_point) if epochs_known else 0
    log.leader_epochs.truncate_from_end(bases[first])
    try:
        for number in range(first, len(bases) - 1):
            segment = log.segments.at(number)
            end = _read_index(segment, log.leader_epochs)
            if _read_rest(segment, end, log.leader_epochs) != bases[number + 1]:
                return None
        start = _read_index(log.active, log.leader_epochs)
        if start is None:
            return None
        _read_rest(log.active, start, log.leader_epochs, log.recovery_point)
    except BadBatch:
        return None
    return max(start.base_offset, log.recovery_point)


def _read_index(segment: Segment, epochs: LeaderEpochs) -> BatchHeader | None:
    """Assign the leader epochs up to the batch of the last index entry. Returns that batch; None without entries.

    The cost per epoch is logarithmic in the size of the index. Raises BadBatch if the index does not fit, OSError.
    """
    file = segment.file()
    entries = segment.index_bytes()
    last = len(entries) // ENTRY_SIZE - 1
    if last < 0:
        return None

    def between(low: int, low_header: BatchHeader, high: int, high_header: BatchHeader) -> None:
        """Assign the epochs that begin after entry `low`, up to entry `high`."""
        if low_header.partition_leader_epoch == high_header.partition_leader_epoch:
            return
        if high - low == 1:
            for header in batches(file, low_header.position, high_header.position + high_header.length):
                epochs.assign(header.partition_leader_epoch, header.base_offset)
            return
        middle = (low + high) // 2
        header = _indexed(segment, file, entries, middle)
        between(low, low_header, middle, header)
        between(middle, header, high, high_header)

    begin, end = _indexed(segment, file, entries, -1), _indexed(segment, file, entries, last)
    epochs.assign(begin.partition_leader_epoch, begin.base_offset)
    between(-1, begin, last, end)
    return end


def _read_rest(segment: Segment, end: BatchHeader | None, epochs: LeaderEpochs, before: int = LONG_MAX) -> int:
    """Assign the leader epochs of the batches from `end` on that begin before offset `before`.

    Returns the offset where these batches end. Raises BadBatch, OSError.
    """
    next_offset = segment.base
    for header in batches(segment.file(), 0 if end is None else end.position, segment.size):
        if header.base_offset >= before:
            break
        if end is None and header.position + header.length < segment.size:
            raise BadBatch(header.position, "the index lacks later batches")
        epochs.assign(header.partition_leader_epoch, header.base_offset)
        next_offset = header.next_offset
    return next_offset


def _indexed(segment: Segment, file: File, entries: bytes, number: int) -> BatchHeader:
    """The header at an index entry; -1: the segment's first header. Raises BadBatch if it does not fit."""
    relative, position = ENTRY.unpack_from(entries, number * ENTRY_SIZE) if number >= 0 else (None, 0)
    data = file.pread(position, HEADER_SIZE)
    if len(data) < HEADER_SIZE:
        raise BadBatch(position, "the index points beyond the file")
    header = BatchHeader(HEADER.unpack(data), position)
    if header.magic != MAGIC or (relative is not None and header.last_offset != segment.base + relative):
        raise BadBatch(position, "not the batch that the index means")
    return header
