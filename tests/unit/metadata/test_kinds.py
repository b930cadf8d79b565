"""The registry of metadata records: complete by construction, and the only place that decides by a record's kind."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest

from kraft_node.controller.state.indexes import Indexes
from kraft_node.metadata import kinds
from kraft_node.metadata.delta import MetadataDelta
from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.kinds.kind import TOPICS, AnyKind, RecordKind, TransactionMark
from kraft_node.metadata.loader import MetadataLoader
from kraft_node.metadata.overlay import Overlay
from kraft_node.metadata.partitions import MetadataError
from kraft_node.metadata.records import RECORD_TYPES
from kraft_node.metadata.snapshot import SnapshotCursor
from kraft_node.metadata.store import MetadataStore
from kraft_protocol.wire import stored
from tests.property.metadata.naive import Stories

NODE = Path(__file__).parents[3] / "node" / "src" / "kraft_node"
ALL = list(kinds.KINDS.values())
CALLED = ("replay", "index", "names", "stale", "appended")
"""The aspects that are functions of a record."""


def fresh(kind: AnyKind) -> Any:
    return getattr(stored, kind.name)()


def test_every_record_in_the_schemas_has_a_kind() -> None:
    assert {number: kind.name for number, kind in kinds.KINDS.items()} == RECORD_TYPES


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_a_kind_is_found_by_records_as_made_and_as_decoded(kind: AnyKind) -> None:
    made = getattr(stored, kind.name)
    assert kinds.kind_of(made()) is kind
    assert kinds.kind_of(object.__new__(made.bare)) is kind


def test_a_message_that_is_not_a_metadata_record_has_no_kind() -> None:
    with pytest.raises(MetadataError, match="RemoteLogSegmentMetadataRecord is not a record of the metadata log"):
        kinds.kind_of(stored.RemoteLogSegmentMetadataRecord())  # tiered storage numbers its records from 0 as well


def test_no_aspect_of_a_kind_has_a_default() -> None:
    fields = dataclasses.fields(RecordKind)
    assert all(f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING for f in fields)
    with pytest.raises(TypeError, match="snapshot"):
        RecordKind(**{f.name: None for f in fields if f.name != "snapshot"})  # type: ignore[arg-type]


def test_a_registry_without_a_kind_or_with_two_is_refused() -> None:
    with pytest.raises(ValueError, match="NoOpRecord"):
        kinds.registry([kind for kind in ALL if kind.name != "NoOpRecord"], RECORD_TYPES)
    with pytest.raises(ValueError, match="NoOpRecord"):
        kinds.registry([*ALL, kinds.KINDS[20]], RECORD_TYPES)
    with pytest.raises(ValueError, match="FutureRecord"):
        kinds.registry(ALL, {**RECORD_TYPES, 99: "FutureRecord"})


def test_a_section_that_no_snapshot_would_hold_is_refused() -> None:
    without = [dataclasses.replace(kind, snapshot=None) if kind.name == "ConfigRecord" else kind for kind in ALL]
    with pytest.raises(ValueError, match="each part of the store needs one kind"):
        kinds.registry(without, RECORD_TYPES)


def test_a_followed_kind_without_an_undo_is_refused() -> None:
    without = [dataclasses.replace(kind, stale=None) if kind.name == "PartitionRecord" else kind for kind in ALL]
    with pytest.raises(ValueError, match="PartitionRecord must set `stale`"):
        kinds.registry(without, RECORD_TYPES)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_each_function_takes_the_record_of_its_kind(kind: AnyKind) -> None:
    for aspect in CALLED:
        function = getattr(kind, aspect)
        if function is not None and kind.mark is None:
            hint = inspect.signature(function).parameters["record"].annotation
            assert f"stored.{kind.name}" in [part.strip() for part in hint.split("|")], aspect


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_every_version_that_a_level_writes_exists(kind: AnyKind) -> None:
    valid = getattr(stored, kind.name).SCHEMA.valid
    assert {kind.version(level) for level in range(7, 31)} <= set(range(valid.low, valid.high + 1))
    assert kind.version(30) == valid.high


def test_every_store_and_delta_has_every_section() -> None:
    image = MetadataImage()
    for name in (*kinds.SECTION_NAMES, TOPICS):
        assert hasattr(image, name)
        assert hasattr(Overlay(image), name)
        assert hasattr(MetadataDelta(), name)
    assert set(inspect.get_annotations(MetadataStore)) == set(kinds.SECTION_NAMES), (
        "the types that mypy sees are those of the registry"
    )
    assert set(inspect.get_annotations(MetadataDelta)) == set(kinds.SECTION_NAMES)


def test_a_random_life_changes_only_the_parts_that_each_kind_names() -> None:
    seen: dict[str, set[str]] = {}
    for seed in range(20):
        loader = MetadataLoader()
        for offset, record in enumerate(Stories(seed).records(300)):
            kind = kinds.kind_of(record)
            loader.apply([(offset, record)], 1, 0)
            delta = loader.publish()
            changed = {name for name in (*kinds.SECTION_NAMES, TOPICS) if getattr(delta, name)}
            assert changed <= set(kind.changes), record
            seen.setdefault(kind.name, set()).update(changed)
    assert all(set(kinds.KINDS[number].changes) == seen[name] for number, name in RECORD_TYPES.items() if name in seen)
    assert len(seen) > 12


def test_a_snapshot_section_holds_only_kinds_of_its_part() -> None:
    loader = MetadataLoader()
    loader.apply(list(enumerate(Stories(1).records(400))), 1, 0)
    with SnapshotCursor(loader.image) as cursor:
        for kind in kinds.SNAPSHOT_KINDS:
            assert kind.snapshot is not None
            assert {kinds.kind_of(found).changes[0] for found in kind.snapshot(cursor)} <= {kind.changes[0]}


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind.mark is not None], ids=lambda kind: kind.name)
def test_a_mark_of_a_transaction_is_not_replayed(kind: AnyKind) -> None:
    with pytest.raises(MetadataError, match=f"a {kind.name} cannot be replayed"):
        MetadataImage().replay(fresh(kind))


def test_the_three_marks_are_the_three_records_of_transactions() -> None:
    assert {kind.mark: kind.name for kind in ALL if kind.mark is not None} == {
        TransactionMark.BEGIN: "BeginTransactionRecord",
        TransactionMark.END: "EndTransactionRecord",
        TransactionMark.ABORT: "AbortTransactionRecord",
    }


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_derived_state_of_a_record_can_be_undone(kind: AnyKind) -> None:
    derived, image = Indexes(), MetadataImage()
    derived.begin(image)
    derived.take_back([fresh(kind)], image)
    assert derived.is_complete


def test_no_other_code_decides_by_the_class_name_of_a_record() -> None:
    found = []
    for package in ("metadata", "controller", "broker", "server"):
        for path in sorted((NODE / package).rglob("*.py")):
            names = {f'"{name}"' for name in RECORD_TYPES.values()}
            texts = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)]
            used = [n.value for n in texts if isinstance(n.value, str) and f'"{n.value}"' in names]
            if used and path.parent.name != "kinds":
                found.append((str(path.relative_to(NODE)), used))
    assert found == [("metadata/bulk.py", ["PartitionRecord"])], "reads its rows without making records"
