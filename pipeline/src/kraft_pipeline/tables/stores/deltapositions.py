"""Positions of batches in files beside a Delta table, and what they show about batch numbers that Delta has dropped.

Delta removes commit infos after `delta.logRetentionDuration`, including the info of a writer's last commit. With
`delta.setTransactionRetentionDuration` it also drops `txn` versions, which are the batch numbers. Without its number a
table would begin again and repeat all rows. Such a table is refused.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables.stores.committer import State
from kraft_pipeline.tables.stores.storage import Storage

POSITIONS: Final = "_kraft_positions"
LEFT_S: Final = 3600.0
"""Seconds after which a draft of a position file is abandoned: a live writer needs milliseconds."""
EXPIRY: Final = "delta.setTransactionRetentionDuration"
"""Property of a table: versions in `txn` expire after this time."""


class StoredPositions:
    """The position files of one writer, `_kraft_positions/<app>/<batch>-<id>.json`. Methods raise OSError."""

    def __init__(self, storage: Storage, app: str) -> None:
        self._storage, self._folder = storage, f"{POSITIONS}/{app}"

    @contextmanager
    def kept(self, state: State) -> Iterator[None]:
        """Store the position of a batch before its commit, and remove older positions afterwards."""
        assert state.position is not None
        name = f"{self._folder}/{state.batch}-{uuid.uuid4().hex}.json"
        self._storage.create(name, json.dumps(state.position.to_json()).encode())
        yield
        limit = time.time() - LEFT_S
        for file in list(self._storage.list(self._folder)):
            number = _number(file.path)
            # Keep later batches: another writer may have committed them. Names of drafts begin with a dot.
            done = number <= state.batch if number is not None else file.modified < limit
            if done and file.path != name:
                self._storage.delete(file.path)

    def of(self, batch: int) -> Position | None:
        """Where a committed batch ended. None without a file, or with several: writers that died left some of them."""
        names = [file.path for file in self._storage.list(self._folder) if _number(file.path) == batch]
        return Position.from_json(self._storage.read(names[0]).decode()) if len(names) == 1 else None

    def newest(self) -> int:
        """The newest batch with a file: the last batch, or the next one, which may not be committed; -1 without."""
        numbers = (_number(file.path) for file in self._storage.list(self._folder))
        return max((number for number in numbers if number is not None), default=-1)

    def lost(self, uri: str, last: int, newest: int) -> ValueError:
        """The error that a batch after `last`, the last in the log, was committed. `newest` has a file."""
        return ValueError(
            f"table {uri}: its log has lost the number of a committed batch (its last one is {last}, batch "
            f"{newest} has a file in {self._folder}), as with {EXPIRY}; to go on would repeat rows. Write to "
            "another path, or begin again with `table reset`"
        )


def check_expiry(uri: str, configuration: Mapping[str, str | None]) -> None:
    """Raise ValueError if the table's batch numbers may expire."""
    given = configuration.get(EXPIRY)
    if given is not None:
        raise ValueError(
            f"table {uri}: {EXPIRY} is {given!r}, so the number of the last batch may expire and all rows would be "
            f"written again; unset it: ALTER TABLE delta.`{uri}` UNSET TBLPROPERTIES ('{EXPIRY}')"
        )


def _number(path: str) -> int | None:
    """The number of the batch; None for a draft."""
    number = path.rpartition("/")[2].partition("-")[0]
    return int(number) if number.isdecimal() else None
