"""YAML files that cannot be read are refused with the name of the file, whatever the parser raises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.archive import spec as archive_spec
from kraft_pipeline.scrub import spec as scrub_spec
from kraft_pipeline.tables.specs import routes, table_spec
from kraft_pipeline.tables.specs.sections import SpecError

LOADERS = (table_spec.load, routes.load_all, scrub_spec.load, archive_spec.load)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"spec: [", "expected"),
        (b"spec: {since: 2026-02-30}", "day is out of range"),
        (b"[" * 5000, "nested too deep"),
        (b"name: \xff", "decode"),
    ],
    ids=["syntax", "date", "depth", "encoding"],
)
@pytest.mark.parametrize("load", LOADERS, ids=lambda load: load.__module__)
def test_an_unreadable_document_is_refused_with_its_file(
    load: Callable[[Path], Any], document: bytes, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "resource.yaml"
    path.write_bytes(document)
    with pytest.raises(SpecError) as refused:
        load(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert reason in str(refused.value)
