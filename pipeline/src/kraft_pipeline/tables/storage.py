"""Files of a table by URI: a folder, or a prefix in an S3-compatible store."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.fs as pafs

from kraft_pipeline.tables.spec import SpecError


class File(NamedTuple):
    """`path` is relative to the table's, with slashes."""

    path: str
    size: int


class Storage(Protocol):
    """What tables need of where they lie. Paths are relative to the table's URI."""

    def write(self, path: str, data: pa.Buffer | bytes) -> None:
        """Put a whole file, durably where that is up to us. Raises OSError."""

    def create(self, path: str, data: bytes) -> bool:
        """Put a whole file unless there is one; whether it was put."""

    def read(self, path: str) -> bytes:
        """A whole file. Raises FileNotFoundError."""

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""

    def list(self, path: str = "") -> Iterator[File]:
        """All files below a folder; none where that is missing."""

    def delete(self, path: str) -> None:
        """Remove a file, which may be gone already."""


def open_storage(uri: str, options: Mapping[str, str]) -> Storage:
    """Where `uri` lies. Raises SpecError for a scheme that is not known."""
    parsed = urlparse(uri)
    if parsed.scheme in {"", "file"}:
        return Folder(Path(parsed.path if parsed.scheme else uri))
    if parsed.scheme in {"s3", "s3a"}:
        return _ObjectStore(f"{parsed.netloc}{parsed.path}".rstrip("/"), _s3(options))
    raise SpecError(f"spec.table.path: {uri!r} is neither a folder nor s3://…")


class Folder:
    """A folder of this machine, or one that all executors have mounted."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def write(self, path: str, data: pa.Buffer | bytes) -> None:
        where = self.root / path
        where.parent.mkdir(parents=True, exist_ok=True)
        with where.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())

    def create(self, path: str, data: bytes) -> bool:
        where = self.root / path
        draft = where.with_name(f".{where.name}.{uuid.uuid4().hex}")
        self.write(str(draft.relative_to(self.root)), data)
        try:
            os.link(draft, where)  # whole or not at all, and only where there is none
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        folder = os.open(where.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return True

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()

    def list(self, path: str = "") -> Iterator[File]:
        for folder, _, names in os.walk(self.root / path):
            for name in names:
                where = Path(folder) / name
                yield File(where.relative_to(self.root).as_posix(), where.stat().st_size)

    def delete(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)


S3_OPTIONS: Final = {
    "AWS_ACCESS_KEY_ID": "access_key",
    "AWS_SECRET_ACCESS_KEY": "secret_key",
    "AWS_SESSION_TOKEN": "session_token",
    "AWS_REGION": "region",
    "AWS_ENDPOINT_URL": "endpoint_override",
}


def _s3(options: Mapping[str, str]) -> pafs.FileSystem:
    named: dict[str, Any] = {S3_OPTIONS[name]: value for name, value in options.items() if name in S3_OPTIONS}
    endpoint = urlparse(named.get("endpoint_override", ""))
    if endpoint.scheme:
        named |= {"scheme": endpoint.scheme, "endpoint_override": endpoint.netloc}
    return pafs.S3FileSystem(**named)


class _ObjectStore:
    """A prefix of a store that Arrow's file systems know.

    `create` asks before it puts, as Arrow has no conditional put: two runners at once on one Parquet table are only
    told apart in folders. (Delta commits by itself, with conditional puts.)
    """

    def __init__(self, root: str, system: pafs.FileSystem) -> None:
        self._root, self._system = root, system

    def write(self, path: str, data: pa.Buffer | bytes) -> None:
        with self._system.open_output_stream(f"{self._root}/{path}") as out:
            out.write(data)

    def create(self, path: str, data: bytes) -> bool:
        if self.exists(path):
            return False
        self.write(path, data)
        return True

    def read(self, path: str) -> bytes:
        with self._system.open_input_stream(f"{self._root}/{path}") as stream:
            found: bytes = stream.read()
            return found

    def exists(self, path: str) -> bool:
        return bool(self._system.get_file_info(f"{self._root}/{path}").type != pafs.FileType.NotFound)

    def list(self, path: str = "") -> Iterator[File]:
        where = f"{self._root}/{path}".rstrip("/")
        for info in self._system.get_file_info(pafs.FileSelector(where, allow_not_found=True, recursive=True)):
            if info.type == pafs.FileType.File:
                yield File(info.path.removeprefix(self._root).lstrip("/"), info.size)

    def delete(self, path: str) -> None:
        try:
            self._system.delete_file(f"{self._root}/{path}")
        except FileNotFoundError:
            return
