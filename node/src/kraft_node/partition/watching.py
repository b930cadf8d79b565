"""The watchers of one partition: readers that are notified once when there is more to read.

Thousands may watch one partition, and each stops when it times out. Up to `FEW` watchers are a list, which needs least
memory. More watchers are the keys of a dictionary, so adding and removing costs the same for any number.
"""

from __future__ import annotations

from typing import Final, Protocol, TypeAlias

FEW: Final = 8


class Watcher(Protocol):
    """A reader that wants one notification when a partition has more to read or has changed otherwise."""

    def partition_changed(self, appended_bytes: int) -> None:
        """About `appended_bytes` more can be read; 0 if something else changed.

        Watch again for further notifications.
        """

    def high_watermark_moved(self) -> None:
        """For readers of the log's end: the high watermark has moved, without new records."""


Watchers: TypeAlias = "list[Watcher] | dict[Watcher, None] | None"
"""Ordered by the time of `watch`; None if there are none."""


def added(watchers: Watchers, watcher: Watcher) -> Watchers:
    """`watchers`, changed in place if possible, with `watcher` at the end."""
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
    """`watchers`, changed in place, without `watcher`, which may be missing."""
    if isinstance(watchers, dict):
        watchers.pop(watcher, None)
    elif watchers is not None and watcher in watchers:
        watchers.remove(watcher)
    return watchers or None
