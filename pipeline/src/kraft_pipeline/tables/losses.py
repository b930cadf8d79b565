"""Records that topics lost before the table read them. Losses are stored beside the table until acknowledged.

Each loss is a file in `_kraft_losses/<application>/`. The planner writes it before the batch that continues after the
loss. The file name identifies the loss, so a loss that is found again is not stored twice. A second file beside it
acknowledges it.

An acknowledgement covers the offsets of its file. If retention has deleted more when the loss is found again, the rest
is a loss of its own.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from typing import Any, Final

from kraft_pipeline.sources.positions import Loss, refuse
from kraft_pipeline.tables.stores.storage import Storage

FOLDER: Final = "_kraft_losses"
_ACKNOWLEDGED: Final = ".acknowledged"


class Losses:
    """Recorded losses of one writer of the table in `storage`. Methods raise OSError."""

    def __init__(self, storage: Storage, app: str) -> None:
        self._storage, self._folder = storage, f"{FOLDER}/{app}"

    def found(self, loss: Loss) -> bool:
        """Record a loss. Returns whether all its offsets have been acknowledged."""
        name = f"{self._folder}/{_id(loss)}.json"
        document = {**loss._asdict(), "time": time.time()}
        if not self._storage.create(name, json.dumps(document).encode()):
            end = json.loads(self._storage.read(name))["end"]
            if 0 <= end < loss.end:
                rest = self.found(loss._replace(first=end, mark=f"{loss.mark} {end}"))
                return rest and self._storage.exists(name + _ACKNOWLEDGED)
        return self._storage.exists(name + _ACKNOWLEDGED)

    def open(self) -> list[dict[str, Any]]:
        """Unacknowledged losses, oldest first, with topic, partition, first, end, cause, and time (Unix, seconds)."""
        found = [json.loads(self._storage.read(name)) for name in self._names()]
        shown = ("topic", "partition", "first", "end", "cause", "time")
        return sorted(({name: loss[name] for name in shown} for loss in found), key=lambda loss: loss["time"])

    def acknowledge(self) -> int:
        """Acknowledge all open losses. Returns their number."""
        names = self._names()
        for name in names:
            self._storage.create(name + _ACKNOWLEDGED, b"{}")
        return len(names)

    def _names(self) -> list[str]:
        names = {file.path for file in self._storage.list(self._folder)}
        return sorted(name for name in names if name.endswith(".json") and name + _ACKNOWLEDGED not in names)


def judged(lost: Sequence[Loss], losses: Losses, *, strict: bool) -> None:
    """Record the losses. If `strict`, raises DataLossError for the first loss that is not acknowledged."""
    unknown = [loss for loss in lost if not losses.found(loss)]
    if strict:
        refuse(unknown)


def _id(loss: Loss) -> str:
    text = json.dumps([loss.topic, loss.partition, loss.mark])
    return hashlib.sha256(text.encode()).hexdigest()[:32]
