"""A standby that follows an active controller, and becomes active itself."""

from __future__ import annotations

import random

from kraft_node.metadata.snapshot import SnapshotCursor
from tests.unit.controller.harness import Quorum


class Following:
    """The standby replays the commits of the active controller, by records or by a snapshot."""

    def __init__(self, active: Quorum, standby: Quorum, rng: random.Random) -> None:
        self._active, self._standby, self._rng = active, standby, rng
        self._replayed = 0

    def step(self) -> None:
        """Replay the new batches; sometimes build a part of the derived state, or load a snapshot."""
        standby = self._standby
        for offset, records in self._active.log.batches[self._replayed :]:
            standby.loader.apply(list(enumerate(records, start=offset)), 1, 0)
            standby.loader.publish()
        self._replayed = len(self._active.log.batches)
        if self._rng.random() < 0.2:
            standby.controller.cluster.indexes.build(standby.image, self._rng.randrange(4))
        if self._rng.random() < 0.1:
            with SnapshotCursor(standby.image) as cursor:
                records = list(cursor)
            standby.loader.load(records, standby.image.offset, 1, 0)
            standby.loader.publish(is_snapshot=True)

    def lead(self) -> None:
        """Make the standby the active controller."""
        self._standby.log.next_offset = self._active.log.next_offset
        self._standby.lead()
