"""How much may be written before Linux makes writers wait (balance_dirty_pages).

The kernel lets writers go on as long as dirty pages and pages under write-back are below the limit. The limit is the
middle of the background threshold and the dirty threshold. Beyond it, a write blocks its thread for up to 200 ms. The
same holds inside a control group (version 2) with a limit of memory, for the memory that its processes may use.
"""

from __future__ import annotations

import os
from typing import Final

from kraft_node.base.env import DirtyRoom

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
VMSTAT: Final = "/proc/vmstat"
CGROUPS: Final = "/sys/fs/cgroup"
MEMORY_PARTS: Final = ("file_dirty", "file_writeback", "inactive_file", "active_file")


class DirtyPages:
    """Reads the kernel's numbers; a call costs some 100 microseconds."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups = _limited_groups()

    def room(self) -> DirtyRoom | None:
        """The bytes that may still be written: the least of the limits of the machine and of the control groups. None
        if unknown."""
        try:
            numbers = _numbers(VMSTAT)
            background, limit = numbers["nr_dirty_background_threshold"], numbers["nr_dirty_threshold"]
            ceiling = (background + limit) // 2 * PAGE_BYTES
            room = DirtyRoom(ceiling - (numbers["nr_dirty"] + numbers["nr_writeback"]) * PAGE_BYTES, ceiling)
        except (OSError, KeyError, ValueError):
            return None
        for group in self._groups:
            of_group = _group_room(group)
            if of_group is not None and of_group.left < room.left:
                room = of_group
        return room


def _numbers(path: str) -> dict[str, int]:
    with open(path, encoding="ascii") as file:
        words = file.read().split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def _limited_groups() -> list[str]:
    """The directories of this process's control group and its parents that may limit memory."""
    try:
        with open("/proc/self/cgroup", encoding="ascii") as file:
            own = next(line[3:].strip() for line in file if line.startswith("0::"))
    except (OSError, StopIteration):
        return []
    parts = [part for part in own.split("/") if part and part != ".."]
    paths = [f"{CGROUPS}/{'/'.join(parts[:count])}".rstrip("/") for count in range(len(parts), -1, -1)]
    return [path for path in paths if os.path.exists(f"{path}/memory.max")]


def _group_room(group: str) -> DirtyRoom | None:
    """As the kernel's: its thresholds are shares of the files in memory and of the memory that is free."""
    try:
        with open(f"{group}/memory.max", encoding="ascii") as file:
            limit = file.read().strip()
        if limit == "max":
            return None
        with open(f"{group}/memory.current", encoding="ascii") as file:
            used = int(file.read())
        stat = _numbers(f"{group}/memory.stat")
        dirty, writeback, inactive, active = (stat[part] for part in MEMORY_PARTS)
        available = inactive + active + max(int(limit) - used, 0)
        ceiling = available * _share_percent() // 100
    except (OSError, KeyError, ValueError):
        return None
    return DirtyRoom(ceiling - dirty - writeback, ceiling)


def _share_percent() -> int:
    """The middle of vm.dirty_background_ratio and vm.dirty_ratio; Linux's own values where bytes are set instead."""
    ratios = []
    for name, otherwise in (("dirty_background_ratio", 10), ("dirty_ratio", 20)):
        with open(f"/proc/sys/vm/{name}", encoding="ascii") as file:
            ratios.append(int(file.read()) or otherwise)
    return sum(ratios) // 2
