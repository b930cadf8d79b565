"""The specifications of pipelines equal those of `kraft-pipeline`: the same fields, with the same defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from kraft_operator.api.pipelines import KafkaMetadataArchiveSpec, KafkaScrubSpec, KafkaTableSpec, given
from kraft_operator.pipelines.kinds import KINDS
from kraft_pipeline.archive import spec as archive_spec
from kraft_pipeline.scrub import spec as scrub_spec
from kraft_pipeline.tables.specs import sections, table_spec
from tests.unit.operator.sample import ARCHIVE, OPERATORS, ROOT, TABLE


def _paths(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """The paths of all fields, as in YAML."""
    for name, field in model.model_fields.items():
        path = f"{above}.{field.alias or name}".lstrip(".")
        inner = [a for a in (field.annotation, *getattr(field.annotation, "__args__", ())) if isinstance(a, type)]
        models = [a for a in inner if issubclass(a, BaseModel)]
        yield from (p for one in models for p in _paths(one, path)) if models else (path,)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The paths of the fields that a command reads."""
    found: set[str] = set()
    get = sections.Section.get

    def note(self: Any, name: str, default: Any = None) -> Any:
        found.add(f"{self.path}.{name}".partition(".spec.")[2])
        return get(self, name, default)

    monkeypatch.setattr(sections.Section, "get", note)
    return found


def _same_fields(model: type[BaseModel], asked: set[str]) -> None:
    sections = {path.rpartition(".")[0] for path in asked}
    ours = {path for path in _paths(model) if path.partition(".")[0] not in OPERATORS}
    assert ours == asked - sections - OPERATORS


def test_fields_of_a_table_match_the_command(asked: set[str]) -> None:
    oauth = {"tokenUrl": "http://r/token", "clientId": "id", "clientSecret": "s"}
    registry = {"url": "http://r", "oauth": oauth}
    for value in ({}, {"format": "avro", "registry": registry}):
        key = {"format": "avro", "schema": '"string"', "registry": registry} if value else {}
        table_spec.parse(_document("KafkaTable", {**TABLE, "bootstrapServers": "a:1", "value": value, "key": key}))
    # no password in plain text
    for part in ("value", "key"):
        asked -= {f"{part}.registry.{name}" for name in ("passwordEnv", "token", "oauth.clientSecret")}
        asked |= {f"{part}.registry.passwordSecret.{name}" for name in ("name", "key")}
    asked.remove("routes")  # for files of the command: a resource is one table, or one table for each topic
    asked |= {"security.secret", "security.user"}
    _same_fields(KafkaTableSpec, asked)


def test_fields_of_an_archive_match_the_command(asked: set[str]) -> None:
    archive_spec.parse(_document("KafkaMetadataArchive", {**ARCHIVE, "bootstrapServers": "a:1"}))
    asked |= {"security.secret", "security.user"}
    _same_fields(KafkaMetadataArchiveSpec, asked)


def test_fields_of_a_scrub_match_the_command() -> None:
    assert {path.partition(".")[0] for path in _paths(KafkaScrubSpec)} == scrub_spec.FIELDS | scrub_spec.OPERATORS


def test_defaults_of_a_table_match_the_command() -> None:
    bare = {**TABLE, "bootstrapServers": "a:1"}
    full = given(KafkaTableSpec.model_validate(bare))
    assert table_spec.parse(_document("KafkaTable", full)) == table_spec.parse(_document("KafkaTable", bare))


def test_defaults_of_an_archive_match_the_command() -> None:
    bare = {**ARCHIVE, "bootstrapServers": "a:1"}
    full = given(KafkaMetadataArchiveSpec.model_validate(bare))
    kind = "KafkaMetadataArchive"
    assert archive_spec.parse(_document(kind, full)) == archive_spec.parse(_document(kind, bare))


def _document(kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "kraftcluster.io/v1alpha1", "kind": kind, "metadata": {"name": "one"}, "spec": dict(spec)}


def test_the_samples_contain_each_kind() -> None:
    documents = list(yaml.safe_load_all((ROOT / "deploy/samples/pipelines.yaml").read_text()))
    assert [one["kind"] for one in documents] == list(KINDS)
    for one in documents:
        KINDS[one["kind"]].spec.model_validate(one["spec"])
