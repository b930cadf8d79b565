"""Expiry of Iceberg snapshots: they leave the metadata early, and their files stay until `vacuumAfter` has passed.

Each version of the metadata holds all snapshots, some 0.8 kB each, so the bytes of a commit would grow with the number
of commits. A commit that finds more than `VERSIONS` plus a tenth also expires the oldest snapshots. Their files stay
until `vacuumAfter` has passed, so running scans can finish. Until then the record `_kraft_expired/<id>.json` names the
snapshots. The record is written before the commit, so a writer that dies leaves no unknown file.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from kraft_pipeline.tables.stores.storage import Storage

FOLDER: Final = "_kraft_expired"
VERSIONS: Final = 1000
"""Snapshots that the metadata keeps: 0.8 MB, or sixteen hours at one batch a minute."""
KEEP: Final = "history.expire.min-snapshots-to-keep"
"""Iceberg's table property; if it is greater than `VERSIONS`, it applies instead."""
LEFT_S: Final = 3600.0
"""Seconds after which the commit of a record is over: commits take seconds."""


class Referred(NamedTuple):
    """Files that snapshots reference, as paths relative to the table."""

    data: set[str]
    rest: set[str]
    """Manifests and manifest lists."""


def due(metadata: TableMetadata) -> list[Snapshot]:
    """The snapshots that the next commit expires, oldest first; empty unless a tenth more than the limit exist."""
    most = max(VERSIONS, int(metadata.properties.get(KEEP, 0)))
    over = len(metadata.snapshots) - most
    if over <= most // 10:
        return []
    kept = {ref.snapshot_id for ref in metadata.refs.values()}
    oldest = sorted(metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)[:over]
    return [snapshot for snapshot in oldest if snapshot.snapshot_id not in kept]


def replaced_ms(snapshots: Sequence[Snapshot]) -> dict[int, int]:
    """When the last child replaced each snapshot, in Unix milliseconds by its id; its own time without a child.

    Scans that began before may still read the files that the child has replaced.
    """
    found = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in snapshots}
    for snapshot in snapshots:
        parent = snapshot.parent_snapshot_id
        if parent in found:
            found[parent] = max(found[parent], snapshot.timestamp_ms)
    return found


def referred(io: FileIO, uri: str, snapshots: Sequence[Snapshot]) -> Referred:
    """The files that snapshots reference. Skips manifests that no longer exist."""
    found = Referred(set(), set())
    for snapshot in snapshots:
        found.rest.add(_path(uri, snapshot.manifest_list))
        try:
            manifests = snapshot.manifests(io)
        except FileNotFoundError:  # an earlier vacuum was interrupted here
            continue
        for manifest in manifests:
            path = _path(uri, manifest.manifest_path)
            if path in found.rest:
                continue
            found.rest.add(path)
            try:
                entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
            except FileNotFoundError:
                continue
            found.data.update(_path(uri, entry.data_file.file_path) for entry in entries)
    return found


def _path(uri: str, location: str) -> str:
    return location.removeprefix(f"{uri}/")


class Record(NamedTuple):
    """Snapshots that left the metadata together."""

    replaced_ms: int
    """When the last of them was replaced, in Unix milliseconds."""
    snapshots: list[Snapshot]

    @classmethod
    def of(cls, document: Any) -> Record:
        """Parse a record; those of earlier releases are lists of snapshots."""
        texts = document if isinstance(document, list) else document["snapshots"]
        found = [Snapshot.model_validate(one) for one in texts]
        newest = max(snapshot.timestamp_ms for snapshot in found)
        return cls(newest if isinstance(document, list) else document["replaced"], found)


class Expired:
    """Records of expired snapshots of one table, from all its writers. Methods raise OSError."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def record(self, snapshots: Sequence[Snapshot], present: Sequence[Snapshot]) -> None:
        """Record snapshots. Call this before the commit that expires them, with the snapshots `present` until then.

        The commit removes them from their children as parents, so the record keeps the time of their replacement.
        """
        replaced = replaced_ms(present)
        document = {
            "replaced": max(replaced[snapshot.snapshot_id] for snapshot in snapshots),
            "snapshots": [snapshot.model_dump(mode="json", by_alias=True) for snapshot in snapshots],
        }
        self._storage.create(f"{FOLDER}/{uuid.uuid4().hex}.json", json.dumps(document).encode())

    def snapshots(self) -> list[Snapshot]:
        """All recorded snapshots."""
        return [snapshot for found in self._records().values() for snapshot in found.snapshots]

    def remove(self, io: FileIO, present: Sequence[Snapshot], older_s: float) -> int:
        """Remove files and records of snapshots replaced `older_s` seconds ago. Returns the number of data files.

        `present`: the snapshots in the metadata; their files stay.
        """
        limit, there = (time.time() - older_s) * 1000, {snapshot.snapshot_id for snapshot in present}
        records = self._records()
        old = {path for path, found in records.items() if found.replaced_ms < limit}
        if not old:
            return 0
        expired = [s for path in old for s in records[path].snapshots if s.snapshot_id not in there]
        gone = referred(io, self._storage.uri, expired)
        rest = [s for path, found in records.items() if path not in old for s in found.snapshots]
        kept = referred(io, self._storage.uri, [*present, *rest])
        data = gone.data - kept.data
        # Remove manifests last: after an interruption the next vacuum finds the data files through them.
        for path in [*sorted(data), *sorted(gone.rest - kept.rest)]:
            self._storage.delete(path)
        begun = time.time() - LEFT_S
        for file in list(self._storage.list(FOLDER)):
            # If snapshots of a record are still in the metadata, their commit may be in progress.
            if file.path not in old:
                continue
            if file.modified < begun or not any(s.snapshot_id in there for s in records[file.path].snapshots):
                self._storage.delete(file.path)
        return len(data)

    def _records(self) -> dict[str, Record]:
        names = [file.path for file in self._storage.list(FOLDER)]
        return {
            name: Record.of(json.loads(self._storage.read(name)))
            for name in names
            if not name.rpartition("/")[2].startswith(".")
        }
