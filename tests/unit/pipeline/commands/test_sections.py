"""Fields of a resource: values that YAML converts, and values of a wrong kind."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.tables.formats.valuespec import read_value
from kraft_pipeline.tables.specs.sections import Section, SpecError


def test_booleans_and_numbers_of_a_mapping_become_the_texts_of_yaml() -> None:
    """`True` is no value of an object store's option; ours compared it with `true`."""
    options = {"AWS_ALLOW_HTTP": True, "retries": 3, "share": 0.5, "text": "a", "off": False}
    assert Section("spec", {"options": options}).mapping("options") == {
        "AWS_ALLOW_HTTP": "true",
        "retries": "3",
        "share": "0.5",
        "text": "a",
        "off": "false",
    }


@pytest.mark.parametrize("value", [None, [1], {"a": 1}])
def test_other_values_of_a_mapping_are_refused(value: Any) -> None:
    with pytest.raises(SpecError, match=r"spec\.options\.key: .* is not a text, a number, true or false"):
        Section("spec", {"options": {"key": value}}).mapping("options")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": "avro", "registry": {"url": "http://r", "user": "a", "passwordEnv": 7}}, r"passwordEnv: 7 is not"),
        ({"format": "avro", "schema": {"type": "record", "day": date(2026, 11, 30)}}, r"schema: this is not JSON"),
        ({"format": "avro", "schemaFile": "binary"}, r"schemaFile: .* can't decode"),
    ],
    ids=["variable", "schema", "file"],
)
def test_values_of_a_wrong_kind_are_refused(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(SpecError, match=message):
        read_value(Section("spec.value", fields), tmp_path)
