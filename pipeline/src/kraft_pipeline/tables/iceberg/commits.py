"""Extensions of PyIceberg's commits: replacements, recognizable manifest names, and less copying per commit."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT

from kraft_pipeline.tables.iceberg.fields import spec_of
from kraft_pipeline.tables.specs.partitions import By
from kraft_pipeline.tables.stores.intents import Work

T = TypeVar("T")


class Shared(list[T]):
    """A list of immutable elements: a deep copy shares them."""

    def __deepcopy__(self, memo: Any) -> Shared[T]:
        return Shared(self)

    def __add__(self, other: Iterable[T]) -> Shared[T]:  # type: ignore[override]
        return Shared([*self, *other])


def shared(metadata: TableMetadata) -> TableMetadata:
    """Metadata with shared snapshots: PyIceberg copies all snapshots 17 times in each commit."""
    names = ("snapshots", "snapshot_log", "metadata_log")
    return metadata.model_copy(update={name: Shared(getattr(metadata, name)) for name in names})


class Overwrite(_OverwriteFiles, _MergeAppendFiles):
    """PyIceberg's overwrite, which merges manifests as an append does.

    PyIceberg's own overwrite keeps one more manifest of deleted entries with each commit. It also builds a condition
    over all partitions to find their manifests, although all manifests have been read.
    """

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        """Count the files of a `replace` as PyIceberg counts the files of an overwrite."""
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
        """Do nothing: all manifests are read."""


TAG_CHARACTERS: Final = 19
"""Characters of a tag's text that name the work: the first 16 hexadecimal digits and their hyphens."""


def tag(work: Work) -> uuid.UUID:
    """A new UUID for names of manifests; its first half identifies the work."""
    first = hashlib.sha256(work.folder.encode()).digest()
    return uuid.UUID(bytes=first[:8] + uuid.uuid4().bytes[8:])


def evolve(tx: Transaction, schema: pa.Schema) -> None:
    """Add and widen columns."""
    with tx.update_schema() as update:
        update.union_by_name(schema)


def partition(tx: Transaction, schema: pa.Schema, levels: Sequence[By]) -> None:
    """Add columns and partitions to a table without files."""
    evolve(tx, schema)
    wanted = spec_of(tx.table_metadata.schema(), levels)
    with tx.update_spec() as update:
        for by, field in zip(levels, wanted.fields, strict=True):
            update.add_field(by.column, field.transform, field.name)
