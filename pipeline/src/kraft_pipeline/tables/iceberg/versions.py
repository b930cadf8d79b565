"""The text of a table's metadata and back, at a cost in proportion to the new snapshots.

A version of the metadata repeats up to a thousand snapshots and their log. Snapshots never change, and versions add
them at the end. So a version is compared with the text of the last one, and only the rest is converted: PyIceberg needs
some 20 µs to read or write a snapshot, and `json` some 10 µs to parse one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from pydantic import BaseModel
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from kraft_pipeline.tables.iceberg.commits import Shared, shared

T = TypeVar("T", bound=BaseModel)
_DECODER: Final = json.JSONDecoder()


class Array(Generic[T]):
    """One array of a document, with elements that never change. It remembers the last text and its elements."""

    def __init__(self, field: str, model: type[T]) -> None:
        """`field`: the name in the document. Its array must not occur twice in a document."""
        self._begin, self._model = f'"{field}":[', model
        self._text, self._texts, self._found = "", list[str](), list[T]()

    def cut(self, text: str) -> tuple[str, list[T] | None]:
        """The document with an empty array, and the elements; None if the array is missing or has spaces between.

        Raises ValueError.
        """
        at = text.find(self._begin)
        if at < 0:
            return text, None
        begin = at = at + len(self._begin)
        if self._text and text.startswith(self._text, begin):
            at, texts, found = begin + len(self._text), list(self._texts), list(self._found)
            known: dict[str, T] = {}
        else:
            texts, found, known = [], [], dict(zip(self._texts, self._found, strict=True))
        while text[at : at + 1] != "]":
            at += len(texts) > 0  # the comma
            try:
                one, end = _DECODER.raw_decode(text, at)
            except ValueError:
                return text, None
            part = text[at:end]
            at = end
            texts.append(part)
            found.append(known.get(part) or self._model.model_validate(one))
        self._keep(text[begin:at], texts, found)
        return f"{text[:begin]}{text[at:]}", list(found)

    def put(self, text: str, found: Sequence[T]) -> str:
        """The document with these elements in its empty array."""
        before, there, after = text.partition(f"{self._begin}]")  # quotes within texts are escaped: this is the field
        assert there, "law: metadata has the array, with elements or without"
        count = len(self._found)
        if found[:count] == self._found:  # compares identities first
            new = [_text_of(one) for one in found[count:]]
            self._keep(",".join([self._text, *new] if count else new), [*self._texts, *new], list(found))
        else:
            known = {id(one): text for one, text in zip(self._found, self._texts, strict=True)}
            texts = [known.get(id(one)) or _text_of(one) for one in found]
            self._keep(",".join(texts), texts, list(found))
        return f"{before}{self._begin}{self._text}]{after}"

    def _keep(self, text: str, texts: list[str], found: list[T]) -> None:
        self._text, self._texts, self._found = text, texts, found


class Versions:
    """Converts versions of one table. It remembers the snapshots of the last version."""

    def __init__(self) -> None:
        self._snapshots = Array("snapshots", Snapshot)
        self._log = Array("snapshot-log", SnapshotLogEntry)

    def read(self, text: str) -> TableMetadata:
        """Parse the metadata; copies of it share their snapshots. Raises ValueError."""
        bare, snapshots = self._snapshots.cut(text)
        bare, log = self._log.cut(bare)
        found = {"snapshots": snapshots, "snapshot_log": log}
        metadata = TableMetadataUtil.parse_obj(json.loads(bare))
        return shared(metadata.model_copy(update={name: given for name, given in found.items() if given is not None}))

    def write(self, metadata: TableMetadata) -> str:
        """The text of the metadata, equal to PyIceberg's."""
        empty = {"snapshots": Shared[Snapshot](), "snapshot_log": Shared[SnapshotLogEntry]()}
        bare = metadata.model_copy(update=empty).model_dump_json(exclude_none=True)
        return self._log.put(self._snapshots.put(bare, metadata.snapshots), metadata.snapshot_log)


def _text_of(one: BaseModel) -> str:
    return one.model_dump_json(exclude_none=True)
