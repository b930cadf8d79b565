"""The YAML of a KafkaMetadataArchive, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kraft_pipeline.tables.specs.sections import Section, read_document
from kraft_pipeline.tables.specs.table_spec import (
    API_VERSION,
    SPARKS,
    EngineSpec,
    SpecError,
    read_engine,
    read_properties_file,
)

KIND: Final = "KafkaMetadataArchive"
FORMATS: Final = ("parquet", "delta")
OPERATORS: Final = ("clusterRef", "schedule", "driver", "paused")
"""Fields that only the operator reads."""


@dataclass(frozen=True, slots=True)
class ArchiveSpec:
    """The source of the metadata (exactly one of the first three fields), and the archive."""

    paths: tuple[str, ...] = ()
    """A directory, or files."""
    controllers: str = ""
    """host:port of controllers, with commas."""
    brokers: str = ""
    """host:port of brokers, which know the controllers."""
    format: str = "parquet"
    path: str = ""
    storage: Mapping[str, str] = field(default_factory=dict)
    engine: EngineSpec = field(default_factory=EngineSpec)
    properties: str = ""
    """The file of Kafka's client properties that secure the connections; "": plaintext."""
    controller_properties: str = ""
    """The same for controllers whose listener differs from the brokers'; "": as `properties`."""

    @property
    def app_id(self) -> str:
        """The name of this writer in the table's transactions and files."""
        return "kafkametadataarchive-metadata"  # independent of the resource's name: a path has a single archive


def load(path: Path) -> ArchiveSpec:
    """Load the spec from a file. Raises SpecError, and OSError if the file cannot be read."""
    return parse(read_document(path), path.parent)


def parse(document: Any, folder: Path | None = None) -> ArchiveSpec:
    """Parse a document; files that it names are relative to `folder`. Raises SpecError, which names the field."""
    top = Section(KIND, document)
    if top.text("apiVersion") != API_VERSION or top.text("kind") != KIND:
        raise SpecError(f"apiVersion and kind must be {API_VERSION} and {KIND}")
    top.get("status")
    top.section("metadata").text("name")
    spec = top.section("spec")
    table, engine, security = spec.section("table"), spec.section("engine"), spec.section("security")
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
        engine=read_engine(engine, SPARKS),
        properties=read_properties_file(security, folder),
        controller_properties=read_properties_file(security, folder, "controllerPropertiesFile"),
    )
    for section in (table, engine, security, spec, top):
        section.done()
    return found
