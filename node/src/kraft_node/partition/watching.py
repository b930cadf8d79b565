"""The watchers of one partition: readers that are notified once when they can read more.

Thousands may watch one partition, and each stops on its own when its time runs out. Up to `FEW` watchers are a list,
which takes the least memory, and are notified at once. More watchers are a `Crowd`, which is notified in turns of the
loop: an append costs the same for any number of watchers.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from kraft_node.base.calls import call_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kraft_node.base.turns import Turns

FEW: Final = 8
TOLD_A_STEP: Final = 32
"""Watchers of a crowd that are notified in one turn: a tenth of a millisecond."""
LEFT_MAX: Final = 64
"""The heap is rebuilt if it has this many more entries of watchers that have left than of present watchers."""


_NOBODY: Final = (-1, -1)


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
    notified. Watchers that need more bytes wait in a heap, by the count at which they have enough, so appends before
    cost nothing for them.
    """

    __slots__ = ("_changed_at", "_due", "_grown", "_heap", "_is_notifying", "_marks", "_patient", "_sequence", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._marks: OrderedDict[Watcher, int] = OrderedDict()
        self._patient: dict[Watcher, tuple[int, int]] = {}
        """Watchers that need more bytes: the count at which each began, and its number in the heap."""
        self._heap: list[tuple[int, int, Watcher]] = []
        self._due: OrderedDict[Watcher, int] = OrderedDict()
        """Watchers that were patient until something else changed, with the count at which each began."""
        self._sequence = 0
        self._grown = 0
        self._changed_at = 0
        """The count at the last notification that was not about an append."""
        self._is_notifying = False

    def __len__(self) -> int:
        return len(self._marks) + len(self._patient) + len(self._due)

    def __iter__(self) -> Iterator[Watcher]:
        return chain(self._due, self._marks, self._patient)

    def add(self, watcher: Watcher, missing_bytes: int = 1) -> None:
        """Notify `watcher` of later appends, once they have `missing_bytes`."""
        if missing_bytes <= 1:
            self._marks[watcher] = self._grown
            return
        self._sequence += 1
        self._patient[watcher] = (self._grown, self._sequence)
        heappush(self._heap, (self._grown + missing_bytes, self._sequence, watcher))

    def discard(self, watcher: Watcher) -> None:
        """Stop notifying `watcher`; allowed if it is missing."""
        if self._marks.pop(watcher, None) is not None or self._due.pop(watcher, None) is not None:
            return
        patient = self._patient
        if patient.pop(watcher, None) is not None and len(self._heap) > 2 * len(patient) + LEFT_MAX:
            self._heap = [entry for entry in self._heap if patient.get(entry[2], _NOBODY)[1] == entry[1]]
            heapify(self._heap)

    def notify(self, appended_bytes: int) -> None:
        """Notify all present watchers, in turns; 0 bytes if something else changed."""
        self._grown += appended_bytes or 1
        if not appended_bytes:
            self._changed_at = self._grown
            self._due.update((watcher, began) for watcher, (began, _) in self._patient.items())
            self._patient.clear()
            self._heap.clear()
        if not self._is_notifying and self._goes_on():
            self._turns.add(self._step)

    def _step(self) -> bool:
        try:
            call_each(self._next())
        except BaseException:
            if self._goes_on():
                self._turns.add(self._step)  # the exception ends the turn, not the notification
            raise
        return self._goes_on()

    def _goes_on(self) -> bool:
        marks, heap, grown = self._marks, self._heap, self._grown
        self._is_notifying = (
            (bool(marks) and next(iter(marks.values())) < grown)
            or bool(self._due)
            or (bool(heap) and heap[0][0] <= grown)
        )
        return self._is_notifying

    def _next(self) -> list[Callable[[], None]]:
        """The notifications of one step; their watchers no longer watch."""
        marks, grown, changed_at = self._marks, self._grown, self._changed_at
        found: list[Callable[[], None]] = []
        for _ in range(TOLD_A_STEP):
            if self._due:
                watcher, began = self._due.popitem(last=False)
            elif self._heap and self._heap[0][0] <= grown:
                _, number, watcher = heappop(self._heap)
                began, present = self._patient.get(watcher, _NOBODY)
                if present != number:
                    continue
                del self._patient[watcher]
            elif marks and (first := next(iter(marks.items())))[1] < grown:
                watcher, began = first
                del marks[watcher]
            else:
                break
            found.append(partial(watcher.partition_changed, 0 if began < changed_at else grown - began))
        return found


Watchers: TypeAlias = "list[Watcher] | Crowd | None"
"""In the order in which they began to watch; None without watchers."""


def added(watchers: Watchers, watcher: Watcher, turns: Turns | None, missing_bytes: int = 1) -> Watchers:
    """Add `watcher` behind the others; changes `watchers` in place if possible.

    Without `turns` (a replica without a broker) they stay a list. A list notifies of each append, a crowd once there
    are `missing_bytes` more.
    """
    if watchers is None:
        return [watcher]
    if isinstance(watchers, Crowd):
        watchers.add(watcher, missing_bytes)
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
