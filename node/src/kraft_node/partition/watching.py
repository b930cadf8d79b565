"""The watchers of one partition: readers that are notified once when they can read more.

Thousands may watch one partition, and each stops on its own when its time runs out. Up to `FEW` watchers are a list,
which takes the least memory, and are notified at once. More watchers are a `Crowd`, which is notified in turns of the
loop: an append costs the same for any number of watchers.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from kraft_node.base.calls import call_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kraft_node.base.turns import Turns

FEW: Final = 8
TOLD_A_STEP: Final = 32
"""Watchers of a crowd that are notified in one turn: a tenth of a millisecond."""


class Watcher(Protocol):
    """A reader that wants one notification when a partition has more to read or has changed otherwise."""

    def partition_changed(self, appended_bytes: int) -> None:
        """About `appended_bytes` more can be read; 0 after another kind of change.

        Watch again for further notifications.
        """

    def high_watermark_moved(self) -> None:
        """For readers of the log's end: the high watermark has moved, without new records."""


class Crowd:
    """More than a few watchers, in the order in which they began to watch.

    `_grown` counts all appended bytes, and each watcher keeps the count at which it began. So a watcher with a late
    turn learns of all bytes that were appended meanwhile. A watcher that began after the latest append is not
    notified.
    """

    __slots__ = ("_changed_at", "_grown", "_is_notifying", "_marks", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._marks: OrderedDict[Watcher, int] = OrderedDict()
        self._grown = 0
        self._changed_at = 0
        """The count at the last notification that was not about an append."""
        self._is_notifying = False

    def __len__(self) -> int:
        return len(self._marks)

    def __iter__(self) -> Iterator[Watcher]:
        return iter(self._marks)

    def add(self, watcher: Watcher) -> None:
        """Notify `watcher` of later appends."""
        self._marks[watcher] = self._grown

    def discard(self, watcher: Watcher) -> None:
        """Stop notifying `watcher`; allowed if it is missing."""
        self._marks.pop(watcher, None)

    def notify(self, appended_bytes: int) -> None:
        """Notify all present watchers, in turns; 0 bytes if something else changed."""
        self._grown += appended_bytes or 1
        if not appended_bytes:
            self._changed_at = self._grown
        if self._marks and not self._is_notifying:
            self._is_notifying = True
            self._turns.add(self._step)

    def _step(self) -> bool:
        try:
            call_each(self._due())
        except BaseException:
            if self._goes_on():
                self._turns.add(self._step)  # the exception ends the turn, not the notification
            raise
        return self._goes_on()

    def _goes_on(self) -> bool:
        marks = self._marks
        self._is_notifying = bool(marks) and next(iter(marks.values())) < self._grown
        return self._is_notifying

    def _due(self) -> list[Callable[[], None]]:
        marks, grown, changed_at = self._marks, self._grown, self._changed_at
        due: list[Callable[[], None]] = []
        while marks and len(due) < TOLD_A_STEP:
            watcher, mark = next(iter(marks.items()))
            if mark == grown:
                break
            del marks[watcher]
            due.append(partial(watcher.partition_changed, 0 if mark < changed_at else grown - mark))
        return due


Watchers: TypeAlias = "list[Watcher] | Crowd | None"
"""In the order in which they began to watch; None without watchers."""


def added(watchers: Watchers, watcher: Watcher, turns: Turns | None) -> Watchers:
    """Add `watcher` behind the others; changes `watchers` in place if possible.

    Without `turns` (a replica without a broker) they stay a list.
    """
    if watchers is None:
        return [watcher]
    if isinstance(watchers, Crowd):
        watchers.add(watcher)
    elif len(watchers) < FEW or turns is None:
        watchers.append(watcher)
    else:
        crowd = Crowd(turns)
        for each in (*watchers, watcher):
            crowd.add(each)
        return crowd
    return watchers


def removed(watchers: Watchers, watcher: Watcher) -> Watchers:
    """Remove `watcher`, in place; allowed if it is missing."""
    if isinstance(watchers, Crowd):
        watchers.discard(watcher)
    elif watchers is not None and watcher in watchers:
        watchers.remove(watcher)
    return watchers or None
