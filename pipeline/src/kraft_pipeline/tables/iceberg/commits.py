"""What PyIceberg's commits lack: replacements, names by which their manifests are found, a cost of what changed."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT

from kraft_pipeline.tables.intents import Work

T = TypeVar("T")


class Shared(list[T]):
    """A list whose elements nobody changes: a deep copy of it has the same ones."""

    def __deepcopy__(self, memo: Any) -> Shared[T]:
        return Shared(self)

    def __add__(self, other: Iterable[T]) -> Shared[T]:  # type: ignore[override]
        return Shared([*self, *other])


def shared(metadata: TableMetadata) -> TableMetadata:
    """The same metadata, whose snapshots are not copied: PyIceberg copies all of them 17 times in each commit."""
    names = ("snapshots", "snapshot_log", "metadata_log")
    return metadata.model_copy(update={name: Shared(getattr(metadata, name)) for name in names})


class Overwrite(_OverwriteFiles, _MergeAppendFiles):
    """PyIceberg's overwrite, its manifests merged as those of appends are.

    By itself it keeps, with each commit, one more that only says which files are gone; and of many partitions it makes
    a condition to find their manifests by, though all of them have been read.
    """

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        """PyIceberg counts the files of an overwrite; those of a replacement are counted likewise."""
        operation, self._operation = self._operation, Operation.OVERWRITE
        try:
            found = super()._summary(snapshot_properties)
        finally:
            self._operation = operation
        return found.model_copy(update={"operation": operation})

    def _existing_manifests(self) -> list[ManifestFile]:
        return [m for m in super()._existing_manifests() if m.has_added_files() or m.has_existing_files()]

    def _build_manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:  # noqa: ARG002
        return lambda _: True

    def _build_delete_files_partition_predicate(self) -> None:
        """See above."""


TAG_CHARACTERS: Final = 19
"""Of a tag's text: the first half of its digits with their hyphens."""


def tag(work: Work) -> uuid.UUID:
    """A new id for names of manifests, whose first half tells which work they are of."""
    first = hashlib.sha256(work.folder.encode()).digest()
    return uuid.UUID(bytes=first[:8] + uuid.uuid4().bytes[8:])
