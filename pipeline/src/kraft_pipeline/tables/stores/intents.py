"""Records of the files that a writer is about to write, kept until their batch is committed.

A record is a small file in `_kraft_intents/<application>/<epoch>-<work>/` with the paths that one task writes next.
After the commit the writer settles the work. It removes recorded files that were not committed (Spark may run a task
twice), and then the records. On Spark, records of files that are not committed stay for a while, because Spark does not
wait for attempts that it ends. If a writer dies, its records remain, and the next start removes exactly the recorded
files that the table does not contain. So a writer never lists the table, and never removes a file of another
application, writer or program. See docs/decisions/0011-file-intents.md.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kraft_pipeline.tables.stores.storage import Storage

FOLDER: Final = "_kraft_intents"
SINCE: Final = "since.json"
"""File in an application's folder: since it was created, the application's writers record their files."""
COMPACT: Final = "compact-"
"""Prefix of the names of work that runs beside the batches of the same writer."""
COMMIT: Final = "commit-"
"""Prefix of the names of a table format's own work. Its files are named after the work, and records have no paths."""


@dataclass(frozen=True, slots=True)
class Work:
    """A unit of work of a writer in a table, such as a batch. It is sent to executors."""

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
        """Number of the batch; None for other work."""
        return int(self.name[1:]) if re.fullmatch(r"b\d+", self.name) else None

    @property
    def is_beside(self) -> bool:
        """Whether it runs beside batches, possibly in another process of the same epoch."""
        return self.name.startswith((COMPACT, COMMIT + COMPACT))

    @property
    def is_formats(self) -> bool:
        """Whether it is a commit of the table's format, which cleans up after it by itself."""
        return self.name.startswith(COMMIT)

    def intend(self, paths: Sequence[str]) -> None:
        """Record files that are about to be written. Raises OSError."""
        self.storage.write(f"{self.folder}/{uuid.uuid4().hex}.json", json.dumps(list(paths)).encode())

    def settle(self, kept: Callable[[], Collection[str]], *, forget: bool = True) -> int:
        """Remove recorded files that are not `kept`, then the records. Returns the number of files. Raises OSError.

        If attempts of tasks may still run, call this again later, and only then with `forget`: until then the records
        of other files stay, because these files may be written yet.
        """
        records = {file.path: self._paths(file.path) for file in self.storage.list(self.folder)}
        recorded, count = {path for paths in records.values() for path in paths}, 0
        known = set(kept()) if recorded else set()
        for path in recorded - known:
            if self.storage.exists(path):
                self.storage.delete(path)
                count += 1
        for record, paths in records.items():
            if forget or (paths and known.issuperset(paths)):
                self.storage.delete(record)
        return count

    def revoke(self, drop: Callable[[Collection[str]], Collection[str]], older_s: float) -> None:
        """End work that may still run: remove the recorded files that `drop` returns, and their records.

        Does nothing if the newest record is younger than `older_s` seconds. Raises OSError.
        """
        found = list(self.storage.list(self.folder))
        if not found or max(file.modified for file in found) > time.time() - older_s:
            return
        records = {file.path: self._paths(file.path) for file in found}
        for path in drop({path for paths in records.values() for path in paths}):
            self.storage.delete(path)
        for record, paths in records.items():
            if paths:
                self.storage.delete(record)

    def _paths(self, record: str) -> list[str]:
        """The paths of a record; empty if the record is incomplete, because its files are written only after it."""
        try:
            found: list[str] = json.loads(self.storage.read(record))
        except (ValueError, FileNotFoundError):
            return []
        return found


def batch(storage: Storage, app: str, epoch: int, number: int) -> Work:
    """The work of a batch."""
    return Work(storage, app, epoch, f"b{number:08d}")


def unsettled(storage: Storage, app: str) -> Iterator[Work]:
    """Yield the work of an application that left records, oldest epoch first. Raises OSError."""
    begin = f"{FOLDER}/{app}/"
    folders = {file.path.removeprefix(begin).partition("/")[0] for file in storage.list(begin.rstrip("/"))}
    for folder in sorted(folders):
        parts = re.fullmatch(r"e(\d+)-(.+)", folder)
        if parts:
            yield Work(storage, app, int(parts[1]), parts[2])


def is_new(storage: Storage, app: str) -> bool:
    """Whether no writer of the application has recorded files yet; earlier releases did not."""
    return not storage.exists(f"{FOLDER}/{app}/{SINCE}")


def begin(storage: Storage, app: str) -> None:
    """Mark that the application's writers record their files from now on."""
    storage.create(f"{FOLDER}/{app}/{SINCE}", b"{}")
