"""The YAML of a KafkaMetadataArchive, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from kraft_pipeline.tables.sections import Section
from kraft_pipeline.tables.spec import API_VERSION, SpecError

KIND: Final = "KafkaMetadataArchive"
FORMATS: Final = ("parquet", "delta")
OPERATORS: Final = ("clusterRef", "schedule", "driver", "paused")
"""Fields that only the operator reads."""


@dataclass(frozen=True, slots=True)
class ArchiveSpec:
    """Where the metadata comes from (exactly one of the first three), and where its archive is."""

    paths: tuple[str, ...] = ()
    """A directory, or files."""
    controllers: str = ""
    """host:port of controllers, with commas."""
    brokers: str = ""
    """host:port of brokers, which know the controllers."""
    format: str = "parquet"
    path: str = ""
    storage: Mapping[str, str] = field(default_factory=dict)

    @property
    def app_id(self) -> str:
        """What names this writer in the table's transactions and files."""
        return "kafkametadataarchive-metadata"  # whatever the resource is called: a path has one archive


def load(path: Path) -> ArchiveSpec:
    """The spec in a file. Raises SpecError, and OSError where it cannot be read."""
    try:
        return parse(yaml.safe_load(path.read_text()))
    except yaml.YAMLError as e:
        raise SpecError(f"{path}: {e}") from None


def parse(document: Any) -> ArchiveSpec:
    """The spec that a document is. Raises SpecError naming the field."""
    top = Section(KIND, document)
    if top.text("apiVersion") != API_VERSION or top.text("kind") != KIND:
        raise SpecError(f"apiVersion and kind must be {API_VERSION} and {KIND}")
    top.get("status")
    top.section("metadata").text("name")
    spec = top.section("spec")
    table = spec.section("table")
    for name in OPERATORS:
        spec.get(name)
    sources = {name: spec.get(name) for name in ("directory", "bootstrapControllers", "bootstrapServers")}
    if sum(value is not None for value in sources.values()) != 1:
        if spec.get("clusterRef") is not None:
            raise SpecError(f"{KIND}.spec.clusterRef: only the operator knows clusters by name; give an address here")
        raise SpecError(f"{KIND}.spec: give one of {', '.join(sources)}")
    found = ArchiveSpec(
        paths=(spec.text("directory"),) if sources["directory"] is not None else (),
        controllers=spec.text("bootstrapControllers") if sources["bootstrapControllers"] is not None else "",
        brokers=spec.text("bootstrapServers") if sources["bootstrapServers"] is not None else "",
        format=table.one_of("format", FORMATS, "parquet"),
        path=table.text("path"),
        storage=table.mapping("storageOptions"),
    )
    for section in (table, spec, top):
        section.done()
    return found
