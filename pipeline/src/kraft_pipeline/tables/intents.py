"""Files that a writer is about to put into a table: on record before they are written, until the batch is committed.

A record is a small file in `_kraft_intents/<application>/<epoch>-<work>/`, with the paths that one task writes next.
After the commit the writer settles the work: it removes what was recorded and not committed (Spark may have run a task
twice), and then the records. A writer that dies leaves records. The next start removes exactly the recorded files that
the table does not know. So nobody lists the table, and nobody touches a file of another application, writer or program.
See docs/decisions/0011-file-intents.md.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kraft_pipeline.tables.storage import Storage

FOLDER: Final = "_kraft_intents"
SINCE: Final = "since.json"
"""Of an application's folder: from then on its writers record what they intend."""
COMPACT: Final = "compact-"
"""How work begins that is done beside the batches of the same writer."""
COMMIT: Final = "commit-"
"""How work begins that is the table's own: its files are named after the work, and the record has no paths."""


@dataclass(frozen=True, slots=True)
class Work:
    """One thing that a writer does in a table, such as a batch. Goes to executors."""

    storage: Storage
    app: str
    epoch: int
    name: str

    @property
    def folder(self) -> str:
        """Folder of the records of this work, relative to the table."""
        return f"{FOLDER}/{self.app}/e{self.epoch:010d}-{self.name}"

    @property
    def batch(self) -> int | None:
        """Its number, None for other work."""
        return int(self.name[1:]) if re.fullmatch(r"b\d+", self.name) else None

    @property
    def is_beside(self) -> bool:
        """Whether it is done beside batches, perhaps by another process of the same epoch."""
        return self.name.startswith((COMPACT, COMMIT + COMPACT))

    def intend(self, paths: Sequence[str]) -> None:
        """Record files that are about to be written. Raises OSError."""
        self.storage.write(f"{self.folder}/{uuid.uuid4().hex}.json", json.dumps(list(paths)).encode())

    def settle(self, kept: Callable[[], Collection[str]]) -> int:
        """Remove the recorded files that are not `kept`, then the records; how many files. Raises OSError."""
        records, count = [file.path for file in self.storage.list(self.folder)], 0
        recorded = [path for record in records for path in self._paths(record)]
        known = set(kept()) if recorded else set()
        for path in set(recorded) - known:
            if self.storage.exists(path):
                self.storage.delete(path)
                count += 1
        for record in records:
            self.storage.delete(record)
        return count

    def _paths(self, record: str) -> list[str]:
        """None of a record that a writer was killed over: its files come after it."""
        try:
            found: list[str] = json.loads(self.storage.read(record))
        except (ValueError, FileNotFoundError):
            return []
        return found


def batch(storage: Storage, app: str, epoch: int, number: int) -> Work:
    """A batch as work."""
    return Work(storage, app, epoch, f"b{number:08d}")


def unsettled(storage: Storage, app: str) -> Iterator[Work]:
    """The work of an application that left records, the oldest epoch first. Raises OSError."""
    begin = f"{FOLDER}/{app}/"
    folders = {file.path.removeprefix(begin).partition("/")[0] for file in storage.list(begin.rstrip("/"))}
    for folder in sorted(folders):
        parts = re.fullmatch(r"e(\d+)-(.+)", folder)
        if parts:
            yield Work(storage, app, int(parts[1]), parts[2])


def is_new(storage: Storage, app: str) -> bool:
    """Whether writers of the application have recorded nothing yet, as those of earlier versions."""
    return not storage.exists(f"{FOLDER}/{app}/{SINCE}")


def begin(storage: Storage, app: str) -> None:
    """From now on they do."""
    storage.create(f"{FOLDER}/{app}/{SINCE}", b"{}")
