"""The list of a directory's logs for which its clean mark does not vouch (`.kraft_quarantined`).

These are damaged logs, each with the end offset of the whole log, and copies from other directories that are not
proven. A line is the name of the partition's directory, then, for a damaged log, a space and the offset. The clean stop
writes the list before the mark; the next start reads and removes it.

Without the offset, recovery would cut a damaged log at its first unsound batch, although its records may have been
acknowledged. With it, the log is quarantined again until its file is restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraft_node.base.env import Disk, read_file, write_atomic
from kraft_node.log import names
from kraft_node.log.segments.files import remove_if_there

Key = tuple[str, int]


def take_list(disk: Disk, directory: str) -> dict[Key, int | None]:
    """The listed logs, with the end offset of each damaged one; the list is removed. Raises OSError."""
    path = f"{directory}/{names.QUARANTINED}"
    try:
        lines = read_file(disk, path).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    found: dict[Key, int | None] = {}
    for line in lines:
        name, _, end = line.partition(" ")
        key = names.parse_partition_dir(name)
        if key is not None:
            found[key] = int(end) if end.isdecimal() else None
    disk.remove(path)
    return found


def write_list(disk: Disk, directory: str, damaged: Mapping[Key, int], unproven: Iterable[Key]) -> None:
    """Write the list: `damaged` logs with their end offsets, and `unproven` copies. Raises OSError.

    An empty list is no file. An older file may be there, if a crash came between the list and the mark: its end offsets
    are stale, and a log that was truncated since would count as damaged.
    """
    lines = [f"{names.partition_dir(*key)} {end}\n" for key, end in damaged.items()]
    lines += [f"{names.partition_dir(*key)}\n" for key in unproven if key not in damaged]
    path = f"{directory}/{names.QUARANTINED}"
    if lines:
        write_atomic(disk, path, "".join(lines).encode())
    else:
        remove_if_there(disk, path)
