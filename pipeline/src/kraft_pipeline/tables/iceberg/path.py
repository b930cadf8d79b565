"""Iceberg tables at a path, without a catalog service, in the layout of Hadoop tables: `metadata/v7.metadata.json`.

`Storage.create` writes a version atomically, and only once per number. A catalog need not guarantee more.
`version-hint.text` names a version to start from, and readers probe the versions after it one by one. So a version
counts as committed even if its writer dies before it updates the hint. Spark reads the table by its path, PyIceberg by
`StaticTable.from_metadata(path)`.
"""

from __future__ import annotations

import io
from typing import Any, Final

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import Identifier, Properties

from kraft_pipeline.tables.iceberg.commits import shared
from kraft_pipeline.tables.iceberg.versions import Versions
from kraft_pipeline.tables.stores.storage import Storage

FOLDER: Final = "metadata"
HINT: Final = f"{FOLDER}/version-hint.text"
HEAD_BYTES: Final = 4096
"""Bytes at the start of a version that have the table's id and the time of the version."""


class PathCatalog(NoopCatalog):
    """A catalog with one table, the table in `storage`; it ignores the names that callers pass."""

    def __init__(self, storage: Storage) -> None:
        super().__init__("path")
        self._location, self._storage = storage.uri, storage
        self._io = StorageIO(storage)
        self._versions = Versions()
        self._known: tuple[int, TableMetadata] | None = None
        self._head = b""
        """Begin of the known version. Another table at the same path has another version of this number."""

    def load_table(self, identifier: str | Identifier) -> Table:  # noqa: ARG002 - there is but one
        """Load the newest version. Raises NoSuchTableError."""
        version = self._newest()
        if version is None:
            raise NoSuchTableError(f"no Iceberg table exists at {self._location}")
        if self._known is None or self._known[0] != version or self._head_of(version) != self._head:
            text = self._storage.read(_name(version))
            self._known, self._head = (version, self._versions.read(text.decode())), text[:HEAD_BYTES]
        return self._table(*self._known)

    def _head_of(self, version: int) -> bytes:
        with self._storage.open(_name(version)) as source:
            return bytes(source.read(HEAD_BYTES))

    def create_table(
        self,
        identifier: str | Identifier,  # noqa: ARG002
        schema: Any,
        location: str | None = None,  # noqa: ARG002
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties | None = None,
    ) -> Table:
        """Create version 1. Raises CommitFailedException if the table exists."""
        assert isinstance(schema, Schema), "with ids, to which the partitions refer"
        metadata = new_table_metadata(schema, partition_spec, sort_order, self._location, dict(properties or {}))
        self._put(1, metadata)
        return self._table(1, metadata)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Write the next version. Raises CommitFailedException if a requirement fails or another writer was first."""
        present = self.load_table(table.name())
        for requirement in requirements:
            requirement.validate(present.metadata)
        metadata = update_table_metadata(present.metadata, updates, metadata_location=present.metadata_location)
        version = _number(present.metadata_location) + 1
        self._put(version, metadata)
        response: dict[str, Any] = {"metadata": metadata, "metadata-location": f"{self._location}/{_name(version)}"}
        return CommitTableResponse(**response)

    def drop_table(self, identifier: str | Identifier) -> None:
        """Do nothing: this catalog keeps nothing outside the table's files."""

    def _put(self, version: int, metadata: TableMetadata) -> None:
        text = self._versions.write(metadata).encode()
        if not self._storage.create(_name(version), text):
            raise CommitFailedException(f"version {version} of {self._location} is another writer's")
        if version > 1 and not self._storage.exists(_name(version - 1)):
            # This process was stopped meanwhile: many versions later, the number was free again. Old versions are
            # removed in their order, so the number was not free while the version before it exists.
            self._storage.delete(_name(version))
            self._known = None
            raise CommitFailedException(f"another writer has written version {version} of {self._location}")
        self._hint(version)
        self._known, self._head = (version, shared(metadata)), text[:HEAD_BYTES]

    def _hint(self, version: int) -> None:
        """Write the hint. A process that was stopped before replaces a newer hint, and then looks for that version."""
        newest: int | None = version
        while newest is not None:
            version = newest
            self._storage.write(HINT, str(version).encode())
            is_newest = self._storage.exists(_name(version)) and not self._storage.exists(_name(version + 1))
            newest = None if is_newest else self._listed()

    def _newest(self) -> int | None:
        version = self._known[0] if self._known else self._hinted() or self._listed()
        while version is not None:
            if self._storage.exists(_name(version + 1)):
                version += 1
            elif self._storage.exists(_name(version)):
                return version
            else:  # old versions are removed first: this version is gone, so look for a newer version
                version = self._hinted() or self._listed()
        return None

    def _hinted(self) -> int | None:
        """The hinted version; None if the hint is missing or incomplete, or if its version has been removed."""
        try:
            version = int(self._storage.read(HINT))
        except (FileNotFoundError, ValueError):
            return None
        return version if self._storage.exists(_name(version)) else None

    def _listed(self) -> int | None:
        names = {file.path for file in self._storage.list(FOLDER)}
        return max((_number(name) for name in names if name == _name(_number(name))), default=None)

    def _table(self, version: int, metadata: TableMetadata) -> Table:
        return Table(("path", self._location), metadata, f"{self._location}/{_name(version)}", self._io, self)


class StorageIO(FileIO):
    """PyIceberg's FileIO over a `Storage`, for metadata files, which are read and written whole."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self._location, self._storage = storage.uri, storage

    def new_input(self, location: str) -> InputFile:
        """A file to read whole. Raises ValueError if `location` is outside the table."""
        return _Input(location, self._storage, self.path(location))

    def new_output(self, location: str) -> OutputFile:
        """A file to write whole when its stream closes. Raises ValueError if it is outside the table."""
        return _Output(location, self._storage, self.path(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file; a missing file is not an error. Raises ValueError if it is outside the table."""
        self._storage.delete(self.path(location if isinstance(location, str) else location.location))

    def path(self, location: str) -> str:
        """The path relative to the table. Raises ValueError for a location outside it."""
        if not location.startswith(f"{self._location}/"):
            raise ValueError(f"{location} is not below {self._location}")
        return location.removeprefix(f"{self._location}/")


class _Input(InputFile):
    def __init__(self, location: str, storage: Storage, path: str) -> None:
        super().__init__(location)
        self._storage, self._path = storage, path

    def __len__(self) -> int:
        return len(self._storage.read(self._path))

    def exists(self) -> bool:
        return self._storage.exists(self._path)

    def open(self, seekable: bool = True) -> Any:  # noqa: ARG002 - as in the class above
        return io.BytesIO(self._storage.read(self._path))


class _Output(OutputFile):
    def __init__(self, location: str, storage: Storage, path: str) -> None:
        super().__init__(location)
        self._storage, self._path, self._size = storage, path, 0

    def __len__(self) -> int:
        return self._size

    def exists(self) -> bool:
        return self._storage.exists(self._path)

    def to_input_file(self) -> InputFile:
        return _Input(self.location, self._storage, self._path)

    def create(self, overwrite: bool = False) -> Any:  # noqa: ARG002 - all names have a number of their own
        return _Stream(self)

    def put(self, data: bytes) -> None:
        self._storage.write(self._path, data)
        self._size = len(data)


class _Stream(io.BytesIO):
    """Buffers a file and writes it whole when it is closed."""

    def __init__(self, file: _Output) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        if not self.closed:
            self._file.put(self.getvalue())
        super().close()


def _name(version: int) -> str:
    return f"{FOLDER}/v{version}.metadata.json"


def _number(name: str) -> int:
    """The version number in a file name; 0 if it is not a metadata file."""
    digits = name.rpartition("/v")[2].removesuffix(".metadata.json")
    return int(digits) if digits.isdecimal() else 0
