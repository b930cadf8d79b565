"""Files of a table by URI: a folder, or a prefix in an object store."""

from __future__ import annotations

import fcntl
import io
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlparse

import pyarrow as pa

from kraft_pipeline.tables.specs.table_spec import SpecError

CLASSES: Final = {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore", "abfss": "AzureStore"}
"""Scheme of a URI -> class of obstore."""
SAME: Final = {"s3a": "s3", "gcs": "gs", "abfs": "abfss"}
"""Other names of schemes."""
ENDPOINTS: Final = ("ENDPOINT", "ENDPOINT_URL", "BASE_URL")
"""Ends of the names of options that have a store's address."""


class File(NamedTuple):
    """A listed file; `path` is relative to the table, with slashes. `size` is in bytes."""

    path: str
    size: int
    modified: float
    """Unix time in seconds, by the clock of the file system or store."""


class Storage(Protocol):
    """File operations that tables need. Paths are relative to `uri`."""

    uri: str
    """An absolute path of a folder, or the URI of a prefix, without a slash at the end."""

    def write(self, path: str, data: pa.Buffer | bytes) -> None:
        """Write a whole file and flush it to disk. Raises OSError."""

    def create(self, path: str, data: bytes) -> bool:
        """Create a whole file atomically. Returns False if it exists; of two concurrent calls one returns False."""

    def replace(self, path: str, data: pa.Buffer | bytes, check: Callable[[], None]) -> None:
        """Replace a whole file atomically, unless `check` raises; `check` decides whether this writer may write.

        Concurrent calls wait, or run `check` again: once a writer's check fails, it cannot overwrite the file of a
        newer writer. Raises OSError and what `check` raises.
        """

    def read(self, path: str) -> bytes:
        """Return a whole file. Raises FileNotFoundError."""

    def open(self, path: str) -> Any:
        """Open a file for random reads, to use in a `with`. Raises FileNotFoundError."""

    def exists(self, path: str) -> bool:
        """Whether the file exists."""

    def list(self, path: str = "") -> Iterator[File]:
        """Yield all files below a folder; nothing if the folder does not exist."""

    def delete(self, path: str) -> None:
        """Remove a file; a missing file is not an error."""


def open_storage(uri: str, options: Mapping[str, str]) -> Storage:
    """Open the storage at `uri`, a folder or a prefix in an object store. Raises SpecError for another scheme."""
    parsed = urlparse(uri)
    if parsed.scheme in {"", "file"}:
        return Folder(Path(parsed.path if parsed.scheme else uri))
    scheme = SAME.get(parsed.scheme, parsed.scheme)
    if scheme in CLASSES and parsed.netloc:
        return ObjectStore(f"{scheme}://{parsed.netloc}{parsed.path}".rstrip("/"), options)
    raise SpecError(
        f"spec.table.path: {uri!r} is neither a folder nor s3://bucket/…, gs://bucket/…, az://container/… or "
        f"abfss://container@account.dfs.core.windows.net/…"
    )


class Folder:
    """A local folder, or a shared folder that all executors mount."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.uri = str(self.root)
        self._durable: set[Path] = set()
        """Folders with durable entries in their parents."""

    def write(self, path: str, data: pa.Buffer | bytes) -> None:
        """Write a whole file, and fsync it and its folder. Creates missing folders, also durably."""
        where = self.root / path
        self._put(where, data)
        _make_durable(where.parent)

    def _put(self, where: Path, data: pa.Buffer | bytes) -> None:
        """Write a file and fsync it and its missing folders; the file's own directory entry is not fsynced."""
        self._make(where.parent)
        with where.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())

    def _make(self, folder: Path) -> None:
        """Make a folder durably.

        A folder inside the table may come from a process that died before its fsync, so its parent is synced once.
        """
        if folder in self._durable and folder.exists():
            return
        new = [one for one in (folder, *folder.parents) if one.is_relative_to(self.root) or not one.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for one in reversed(new):
            _make_durable(one.parent)
        self._durable.update(new)

    def create(self, path: str, data: bytes) -> bool:
        """As `Storage.create`, by a hard link to a synced draft; fsyncs the folder."""
        where = self.root / path
        draft = where.with_name(f".{where.name}.{uuid.uuid4().hex}")
        self._put(draft, data)
        try:
            os.link(draft, where)  # atomic, and fails if the file exists
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        _make_durable(where.parent)
        return True

    def replace(self, path: str, data: pa.Buffer | bytes, check: Callable[[], None]) -> None:
        """As `Storage.replace`, under an exclusive `flock` that a kill releases; fsyncs the folder."""
        where = self.root / path
        draft = where.with_name(f".{where.name}.{uuid.uuid4().hex}")
        self._put(draft, data)
        try:
            with where.with_name(f".{where.name}.lock").open("wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file closes, also by a kill
                check()
                os.replace(draft, where)
        finally:
            draft.unlink(missing_ok=True)
        _make_durable(where.parent)

    def read(self, path: str) -> bytes:
        """Return a whole file. Raises FileNotFoundError."""
        return (self.root / path).read_bytes()

    def open(self, path: str) -> Any:
        """Open a file for random reads. Raises FileNotFoundError."""
        return (self.root / path).open("rb")

    def exists(self, path: str) -> bool:
        """Whether the file exists."""
        return (self.root / path).exists()

    def list(self, path: str = "") -> Iterator[File]:
        """Yield all files below a folder, drafts and locks included. Skips files that vanish meanwhile."""
        for folder, _, names in os.walk(self.root / path):
            for name in names:
                where = Path(folder) / name
                try:
                    found = where.stat()
                except FileNotFoundError:  # deleted since the folder was read
                    continue
                yield File(where.relative_to(self.root).as_posix(), found.st_size, found.st_mtime)

    def delete(self, path: str) -> None:
        """Remove a file; a missing file is not an error."""
        (self.root / path).unlink(missing_ok=True)


def _make_durable(folder: Path) -> None:
    """Fsync the directory entries of a folder."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def store_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options for delta-rs and obstore; an http:// endpoint implies that http is allowed."""
    plain = any(value.startswith("http://") for name, value in options.items() if name.upper().endswith(ENDPOINTS))
    return {"ALLOW_HTTP": "true", **options} if plain else dict(options)


class ObjectStore:
    """A prefix of an object store with conditional puts: S3 and compatible stores, Google's and Azure's.

    Options have delta-rs' names, because both use the same library: AWS_ENDPOINT_URL, GOOGLE_SERVICE_ACCOUNT,
    AZURE_STORAGE_ACCOUNT_KEY, …. Missing options come from the environment or from the metadata service of the cloud's
    machines.
    """

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        """Raises SpecError for an address or options that the library refuses."""
        import obstore.exceptions  # noqa: PLC0415 - an extra that only tables in a store need
        import obstore.store  # noqa: PLC0415

        self.uri = uri
        named = store_options(options)
        allow = [named.pop(name) for name in list(named) if name.upper().endswith("ALLOW_HTTP")]
        kind: Any = getattr(obstore.store, CLASSES[urlparse(uri).scheme])
        try:
            self._store = kind.from_url(uri, config=named, client_options={"allow_http": "true" in allow})
        except (obstore.exceptions.BaseError, ValueError) as e:
            raise SpecError(f"spec.table.path: {uri}: {str(e).partition('Debug source')[0].strip()}") from None

    def write(self, path: str, data: pa.Buffer | bytes) -> None:
        """Put a whole object, which is durable when this returns. Raises OSError."""
        with _as_os_errors(path):
            self._store.put(path, memoryview(data).cast("B"))

    def create(self, path: str, data: bytes) -> bool:
        """Put with `If-None-Match`. If the object exists with these bytes, a retried put created it: True."""
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415

        try:
            with _as_os_errors(path):
                self._store.put(path, data, mode="create")
        except AlreadyExistsError:
            # If the answer to a put was lost and the put was retried, the object has our bytes.
            return self.read(path) == data
        return True

    def replace(self, path: str, data: pa.Buffer | bytes, check: Callable[[], None]) -> None:
        """As `Storage.replace`, by a conditional put with the version read before `check`; retried on conflict."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: PLC0415

        while True:
            version = self._version(path)  # before the check: a put between the two is by a newer writer and must win
            check()
            mode: Any = version or "create"
            try:
                with _as_os_errors(path):
                    self._store.put(path, memoryview(data).cast("B"), mode=mode)
            except (AlreadyExistsError, PreconditionError):
                continue
            return

    def _version(self, path: str) -> dict[str, str]:
        """ETag and version of the current object; empty if it does not exist. Raises OSError if it has neither."""
        try:
            with _as_os_errors(path):
                found = self._store.head(path)
        except FileNotFoundError:
            return {}
        known = {name: value for name in ("e_tag", "version") if (value := found.get(name)) is not None}
        if not known:
            raise OSError(f"{path}: the store returns no ETag, so two writers could not be distinguished")
        return known

    def read(self, path: str) -> bytes:
        """Return a whole object. Raises FileNotFoundError and other OSErrors."""
        with _as_os_errors(path):
            return bytes(self._store.get(path).bytes())

    def open(self, path: str) -> Any:
        """Open an object for random reads; each read is one range request. Raises FileNotFoundError."""
        with _as_os_errors(path):
            return _Ranges(self._store, path, self._store.head(path)["size"])

    def exists(self, path: str) -> bool:
        """Whether the object exists. Raises OSError if the store does not answer."""
        try:
            with _as_os_errors(path):
                self._store.head(path)
        except FileNotFoundError:
            return False
        return True

    def list(self, path: str = "") -> Iterator[File]:
        """Yield all objects below a prefix. Raises OSError."""
        with _as_os_errors(path):
            for page in self._store.list(path or None):
                for found in page:
                    yield File(found["path"], found["size"], found["last_modified"].timestamp())

    def delete(self, path: str) -> None:
        """Remove an object; a missing object is not an error."""
        try:
            with _as_os_errors(path):
                self._store.delete(path)
        except FileNotFoundError:
            return


class _Ranges(io.RawIOBase):
    """An object opened for random reads; each read is a range request."""

    def __init__(self, store: Any, path: str, size: int) -> None:
        super().__init__()
        self._store, self._path, self._size, self._at = store, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._size - self._at)
        if length <= 0:
            return 0
        with _as_os_errors(self._path):
            buffer[:length] = memoryview(self._store.get_range(self._path, start=self._at, length=length))
        self._at += length
        return length


@contextmanager
def _as_os_errors(path: str) -> Iterator[None]:
    from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError  # noqa: PLC0415

    try:
        yield
    except (AlreadyExistsError, PreconditionError):
        raise
    except BaseError as e:
        raise OSError(f"{path}: {str(e).partition('Debug source')[0].strip()}") from e
