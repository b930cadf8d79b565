"""The text of Iceberg metadata with remembered snapshots equals what PyIceberg writes and reads."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from kraft_pipeline.tables.iceberg.versions import Versions


def metadata(snapshots: int, **more: Any) -> TableMetadata:
    schema = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "n", "required": False, "type": "long"}]}
    found = [
        {
            "snapshot-id": 10 + number,
            "parent-snapshot-id": 9 + number if number else None,
            "sequence-number": number + 1,
            "timestamp-ms": 1_700_000_000_000 + number,
            "manifest-list": f"file:/t/metadata/snap-{number}.avro",
            "summary": {"operation": "append", "added-records": "20", 'note"s': '"snapshots":[]'},
            "schema-id": 0,
        }
        for number in range(snapshots)
    ]
    given: dict[str, Any] = {
        "format-version": 2,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": "file:/t",
        "last-sequence-number": snapshots,
        "last-updated-ms": 1_700_000_000_000,
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [schema],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"quoted": '{"snapshots":[]}', "snapshots": "[]"},
        "snapshots": found,
        "snapshot-log": [{"snapshot-id": s["snapshot-id"], "timestamp-ms": s["timestamp-ms"]} for s in found],
        **more,
    }
    if found:
        given["current-snapshot-id"] = found[-1]["snapshot-id"]
    return TableMetadataUtil.parse_obj(given)


@pytest.mark.parametrize("snapshots", [0, 1, 5])
def test_texts_and_metadata_equal_pyicebergs(snapshots: int) -> None:
    known = Versions()
    for count in (snapshots, snapshots + 1, snapshots + 3, snapshots):
        given = metadata(count)
        text = given.model_dump_json(exclude_none=True)
        assert known.write(given) == text
        found = known.read(text)
        assert found == TableMetadataUtil.parse_raw(text) == given
        assert known.write(found) == text
        assert Versions().write(Versions().read(text)) == text


def test_a_snapshot_is_read_once() -> None:
    known = Versions()
    first = known.read(metadata(3).model_dump_json(exclude_none=True))
    second = known.read(metadata(4).model_dump_json(exclude_none=True))
    assert [a is b for a, b in zip(first.snapshots, second.snapshots, strict=False)] == [True] * 3


def test_a_snapshot_that_another_table_has_under_the_same_id_is_read_anew() -> None:
    known = Versions()
    text = metadata(2).model_dump_json(exclude_none=True)
    known.read(text)
    found = known.read(text.replace('"added-records":"20"', '"added-records":"21"'))
    assert found.snapshots[0].summary is not None
    assert found.snapshots[0].summary["added-records"] == "21"


def test_a_version_with_spaces_between_snapshots_is_read_whole() -> None:
    given = metadata(3)
    document = json.loads(given.model_dump_json(exclude_none=True))
    for text in (json.dumps(document), json.dumps(document, indent=2)):
        known = Versions()
        assert known.read(text) == given
        assert known.write(known.read(text)) == given.model_dump_json(exclude_none=True)


def test_a_version_without_snapshots_that_others_removed_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an expiry, and after a commit that another writer has overtaken."""
    known, reported = Versions(), list[Any]()
    known.write(metadata(6))
    plain = Snapshot.model_validate
    monkeypatch.setattr(Snapshot, "model_validate", lambda given: (reported.append(given), plain(given))[1])
    fewer = metadata(6)
    fewer = fewer.model_copy(update={"snapshots": fewer.snapshots[2:], "snapshot_log": fewer.snapshot_log[2:]})
    assert known.read(fewer.model_dump_json(exclude_none=True)) == fewer
    assert not reported


def test_a_torn_version_is_refused() -> None:
    text = metadata(3).model_dump_json(exclude_none=True)
    for end in range(0, len(text), 7):
        known = Versions()
        known.write(metadata(2))
        with pytest.raises(ValueError):
            known.read(text[:end])


def test_reading_and_writing_a_version_convert_only_its_new_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, each version was parsed whole, which made up most of what a batch cost more on the seventh day."""
    writer, reader = Versions(), Versions()
    found = reader.read(writer.write(metadata(400)))
    newer = metadata(401)
    newer = newer.model_copy(
        update={
            "snapshots": [*found.snapshots, newer.snapshots[-1]],
            "snapshot_log": [*found.snapshot_log, newer.snapshot_log[-1]],
        }
    )
    steps = Counter[str]()
    plain, load = json.JSONDecoder.raw_decode, json.loads
    monkeypatch.setattr(json.JSONDecoder, "raw_decode", lambda *a, **k: (steps.update(["elements"]), plain(*a, **k))[1])
    monkeypatch.setattr(json, "loads", lambda text: (steps.update({"parsed": len(text)}), load(text))[1])
    for model in (Snapshot, SnapshotLogEntry):
        dump = model.model_dump_json
        monkeypatch.setattr(
            model, "model_dump_json", lambda *a, dump=dump, **k: (steps.update(["written"]), dump(*a, **k))[1]
        )
    reader.write(found)
    steps.clear()
    text = reader.write(newer)
    assert steps == {"written": 2}
    steps.clear()
    assert writer.read(text) == newer
    assert steps["elements"] == 3, "a snapshot, its entry in the log, and the document"
    assert steps["parsed"] < 2000
