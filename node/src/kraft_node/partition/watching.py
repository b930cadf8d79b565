"""The watchers of one partition: readers that are notified once when there is more to read.

Thousands may watch one partition, and each stops on its own when its time runs out. Up to `FEW` watchers are a list,
which takes least memory, and are told at once. More are a `Crowd`, which is told in turns of the loop: an append costs
the same however many there are.
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
"""Watchers of a crowd that are told in one go: a tenth of a millisecond."""


class Watcher(Protocol):
    """A reader that wants one notification when a partition has more to read or has changed otherwise."""

    def partition_changed(self, appended_bytes: int) -> None:
        """About `appended_bytes` more can be read; 0 if something else changed.

        Watch again for further notifications.
        """

    def high_watermark_moved(self) -> None:
        """For readers of the log's end: the high watermark has moved, without new records."""


class Crowd:
    """More than a few watchers, in the order in which they began to watch.

    `_grown` counts the bytes that have come so far, and each watcher keeps the count at which it began. So a watcher
    whose turn comes late learns of all that came meanwhile, and one that began after the latest append is not told.
    """

    __slots__ = ("_changed_at", "_grown", "_is_telling", "_marks", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._marks: OrderedDict[Watcher, int] = OrderedDict()
        self._grown = 0
        self._changed_at = 0
        """The count at which something else than an append was last told."""
        self._is_telling = False

    def __len__(self) -> int:
        return len(self._marks)

    def __iter__(self) -> Iterator[Watcher]:
        return iter(self._marks)

    def add(self, watcher: Watcher) -> None:
        """Tell `watcher` of what comes from now on."""
        self._marks[watcher] = self._grown

    def discard(self, watcher: Watcher) -> None:
        """Do not tell `watcher`, which need not be there."""
        self._marks.pop(watcher, None)

    def tell(self, appended_bytes: int) -> None:
        """Tell all that watch now, in turns; 0 bytes if something else changed."""
        self._grown += appended_bytes or 1
        if not appended_bytes:
            self._changed_at = self._grown
        if self._marks and not self._is_telling:
            self._is_telling = True
            self._turns.add(self._step)

    def _step(self) -> bool:
        try:
            call_each(self._due())
        except BaseException:
            if self._goes_on():
                self._turns.add(self._step)  # the turn ends with the exception, not the telling
            raise
        return self._goes_on()

    def _goes_on(self) -> bool:
        marks = self._marks
        self._is_telling = bool(marks) and next(iter(marks.values())) < self._grown
        return self._is_telling

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
"""In the order in which they began to watch; None if there are none."""


def added(watchers: Watchers, watcher: Watcher, turns: Turns | None) -> Watchers:
    """`watchers`, changed in place where that is possible, with `watcher` behind the others.

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
    """`watchers`, changed in place, without `watcher`, which need not be among them."""
    if isinstance(watchers, Crowd):
        watchers.discard(watcher)
    elif watchers is not None and watcher in watchers:
        watchers.remove(watcher)
    return watchers or None
