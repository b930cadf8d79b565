"""Files of a table by URI: a folder, or a prefix in an S3-compatible store."""

from __future__ import annotations

import fcntl
import io
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlparse

import pyarrow as pa

from kraft_pipeline.tables.spec import SpecError


class File(NamedTuple):
    """`path` is relative to the table's, with slashes."""

    path: str
    size: int
    modified: float
    """Seconds since 1970, by the clock of where it lies."""


class Storage(Protocol):
    """What tables need of where they lie. Paths are relative to `uri`."""

    uri: str
    """A folder's path from the root on, or s3://…, without a slash at the end."""

    def write(self, path: str, data: pa.Buffer | bytes) -> None:
        """Put a whole file, durably where that is up to us. Raises OSError."""

    def create(self, path: str, data: bytes) -> bool:
        """Put a whole file unless there is one; whether it was put. Of two that do so at once one is told no."""

    def replace(self, path: str, data: pa.Buffer | bytes, check: Callable[[], None]) -> None:
        """Put a whole file in the place of another, unless `check` raises, which says who may.

        Of two writers that do so at once the one whose check is refused from some moment on puts nothing after it that
        another has put since. Raises OSError.
        """

    def read(self, path: str) -> bytes:
        """A whole file. Raises FileNotFoundError."""

    def open(self, path: str) -> Any:
        """A file to read here and there, in a `with`. Raises FileNotFoundError."""

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
    if parsed.scheme in {"s3", "s3a"} and parsed.netloc:
        return ObjectStore(f"s3://{parsed.netloc}{parsed.path}".rstrip("/"), options)
    raise SpecError(f"spec.table.path: {uri!r} is neither a folder nor s3://bucket/…")


class Folder:
    """A folder of this machine, or one that all executors have mounted."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.uri = str(self.root)

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
        _make_durable(where.parent)
        return True

    def replace(self, path: str, data: pa.Buffer | bytes, check: Callable[[], None]) -> None:
        where = self.root / path
        draft = where.with_name(f".{where.name}.{uuid.uuid4().hex}")
        self.write(str(draft.relative_to(self.root)), data)
        try:
            with where.with_name(f".{where.name}.lock").open("wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # let go of when the file is closed, by a kill as well
                check()
                os.replace(draft, where)
        finally:
            draft.unlink(missing_ok=True)
        _make_durable(where.parent)

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def open(self, path: str) -> Any:
        return (self.root / path).open("rb")

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()

    def list(self, path: str = "") -> Iterator[File]:
        for folder, _, names in os.walk(self.root / path):
            for name in names:
                where = Path(folder) / name
                try:
                    found = where.stat()
                except FileNotFoundError:  # gone since
                    continue
                yield File(where.relative_to(self.root).as_posix(), found.st_size, found.st_mtime)

    def delete(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)


def _make_durable(folder: Path) -> None:
    """The names in it."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def s3_options(options: Mapping[str, str]) -> dict[str, str]:
    """As delta-rs wants them; an endpoint without TLS is one that was meant."""
    plain = options.get("AWS_ENDPOINT_URL", "").startswith("http://")
    return {"AWS_ALLOW_HTTP": "true", **options} if plain else dict(options)


class ObjectStore:
    """A prefix of an S3-compatible store, with conditional puts.

    Options are those of delta-rs (both are the same library beneath): AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, …; what is
    not given is looked for in the environment and where Amazon's machines have it.
    """

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        from obstore.store import S3Store  # noqa: PLC0415 - only those who keep tables in a store need it

        self.uri = uri
        named = s3_options(options)
        allow = named.pop("AWS_ALLOW_HTTP", "false") == "true"
        config: Any = named
        self._store = S3Store.from_url(uri, config=config, client_options={"allow_http": allow})

    def write(self, path: str, data: pa.Buffer | bytes) -> None:
        with _as_os_errors(path):
            self._store.put(path, memoryview(data).cast("B"))

    def create(self, path: str, data: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415

        try:
            with _as_os_errors(path):
                self._store.put(path, data, mode="create")
        except AlreadyExistsError:
            # An answer that was lost, and the put done again: then what is there is what was to be put.
            return self.read(path) == data
        return True

    def replace(self, path: str, data: pa.Buffer | bytes, check: Callable[[], None]) -> None:
        from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: PLC0415

        while True:
            tag = self._tag(path)  # before the check: who is put between the two is another writer, and newer
            check()
            mode: Any = "create" if tag is None else {"e_tag": tag}
            try:
                with _as_os_errors(path):
                    self._store.put(path, memoryview(data).cast("B"), mode=mode)
            except (AlreadyExistsError, PreconditionError):
                continue
            return

    def _tag(self, path: str) -> str | None:
        """Of the present version of a file, None without one. Raises OSError for a store that tells none."""
        try:
            with _as_os_errors(path):
                tag = self._store.head(path)["e_tag"]
        except FileNotFoundError:
            return None
        if tag is None:
            raise OSError(f"{path}: the store tells no ETag, so two writers could not be told apart")
        return tag

    def read(self, path: str) -> bytes:
        with _as_os_errors(path):
            return bytes(self._store.get(path).bytes())

    def open(self, path: str) -> Any:
        with _as_os_errors(path):
            return _Ranges(self._store, path, self._store.head(path)["size"])

    def exists(self, path: str) -> bool:
        try:
            with _as_os_errors(path):
                self._store.head(path)
        except FileNotFoundError:
            return False
        return True

    def list(self, path: str = "") -> Iterator[File]:
        with _as_os_errors(path):
            for some in self._store.list(path or None):
                for found in some:
                    yield File(found["path"], found["size"], found["last_modified"].timestamp())

    def delete(self, path: str) -> None:
        try:
            with _as_os_errors(path):
                self._store.delete(path)
        except FileNotFoundError:
            return


class _Ranges(io.RawIOBase):
    """A file of an object store; each read is a request for what is wanted."""

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
