"""The watchers of one partition: readers that are told once when there is more to read.

Thousands may watch one partition, and each stops on its own when its time runs out. Up to `FEW` watchers are a list,
which takes least memory. More are the keys of a dictionary, so one more or one less costs the same however many there
are.
"""

from __future__ import annotations

from typing import Final, Protocol, TypeAlias

FEW: Final = 8


class Watcher(Protocol):
    """A reader that wants to learn once that a partition has more to read, or is no longer what it was."""

    def partition_changed(self, appended_bytes: int) -> None:
        """About `appended_bytes` more can be read; 0 if something else changed. To learn more, watch again."""

    def high_watermark_moved(self) -> None:
        """For readers of the log's end: the high watermark has moved, which is news but no records."""


Watchers: TypeAlias = "list[Watcher] | dict[Watcher, None] | None"
"""In the order in which they began to watch; None if there are none."""


def added(watchers: Watchers, watcher: Watcher) -> Watchers:
    """`watchers`, changed in place where that is possible, with `watcher` behind the others."""
    if watchers is None:
        return [watcher]
    if isinstance(watchers, dict):
        watchers[watcher] = None
    elif len(watchers) < FEW:
        watchers.append(watcher)
    else:
        return dict.fromkeys((*watchers, watcher))
    return watchers


def removed(watchers: Watchers, watcher: Watcher) -> Watchers:
    """`watchers`, changed in place, without `watcher`, which need not be among them."""
    if isinstance(watchers, dict):
        watchers.pop(watcher, None)
    elif watchers is not None and watcher in watchers:
        watchers.remove(watcher)
    return watchers or None
