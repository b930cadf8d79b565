"""The text of a table's metadata and back. Snapshots never change, so each is converted once a process.

A version of the metadata repeats up to a thousand snapshots, and PyIceberg needs some 20 µs to read or write one of
them. With all of them, the cost of a commit would grow with the number of earlier commits.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

from kraft_pipeline.tables.iceberg.commits import Shared, shared

_NONE: Final = '"snapshots":[]'


class _Known(NamedTuple):
    snapshot: Snapshot
    given: dict[str, Any]
    text: str


class Versions:
    """Converts versions of one table. It remembers the snapshots of the last version."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def read(self, text: str) -> TableMetadata:
        """Parse the metadata; copies of it share their snapshots. Raises ValueError."""
        document = json.loads(text)
        found = {one["snapshot-id"]: self._read(one) for one in document.get("snapshots") or ()}
        metadata = TableMetadataUtil.parse_obj({**document, "snapshots": []})
        self._known = found
        return shared(metadata.model_copy(update={"snapshots": [known.snapshot for known in found.values()]}))

    def write(self, metadata: TableMetadata) -> str:
        """The text of the metadata, equal to PyIceberg's."""
        found = {snapshot.snapshot_id: self._write(snapshot) for snapshot in metadata.snapshots}
        bare = metadata.model_copy(update={"snapshots": Shared[Snapshot]()}).model_dump_json(exclude_none=True)
        before, there, after = bare.partition(_NONE)  # quotes within texts are escaped, so this is the field
        assert there, "law: metadata has snapshots, none or more"
        self._known = found
        return f"{before}{_NONE[:-1]}{','.join(known.text for known in found.values())}]{after}"

    def _read(self, given: dict[str, Any]) -> _Known:
        known = self._known.get(given["snapshot-id"])
        if known is not None and known.given == given:
            return known
        return self._made(Snapshot.model_validate(given), given)

    def _write(self, snapshot: Snapshot) -> _Known:
        known = self._known.get(snapshot.snapshot_id)
        return known if known is not None and known.snapshot is snapshot else self._made(snapshot, None)

    @staticmethod
    def _made(snapshot: Snapshot, given: dict[str, Any] | None) -> _Known:
        text = snapshot.model_dump_json(exclude_none=True)
        return _Known(snapshot, json.loads(text) if given is None else given, text)
