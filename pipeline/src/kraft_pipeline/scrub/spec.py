"""The specification of a scrub: the YAML of a KafkaScrub, or the arguments of the command."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kraft_pipeline.tables.specs.sections import Section, SpecError, read_document
from kraft_pipeline.tables.specs.table_spec import SPARKS, EngineSpec, read_engine, read_properties_file
from kraft_protocol.client.cluster import Settings

API_VERSION: Final = "kraftcluster.io/v1alpha1"
KIND: Final = "KafkaScrub"
FIELDS: Final = {"directories", "bootstrapServers", "clusterRef", "topics", "engine", "security"}
OPERATORS: Final = {"driver", "paused", "schedule"}
"""Fields that only the operator reads: when a scrub runs, and how as a pod."""


@dataclass(frozen=True, slots=True)
class ScrubSpec:
    """The replicas to scrub: in log directories, or on a cluster's brokers."""

    directories: tuple[str, ...] = ()
    bootstrap: str = ""
    topics: tuple[str, ...] = ("*",)
    """Names of topics, with `*` and `?`."""
    name: str = "scrub"
    engine: EngineSpec = field(default_factory=EngineSpec)
    properties: str = ""
    """The file of Kafka's client properties that secure the connections; "": plaintext."""

    def check(self) -> None:
        """Raise ValueError unless directories or bootstrap servers are given, but not both."""
        if bool(self.directories) == bool(self.bootstrap):
            raise SpecError("give log directories, or a bootstrap server: one of them")
        if self.bootstrap:
            Settings(self.bootstrap).servers()
        for directory in self.directories:
            if not Path(directory, "meta.properties").is_file():
                raise SpecError(f"{directory} is not a log directory: it has no meta.properties")


def load(path: Path) -> ScrubSpec:
    """Load a KafkaScrub from a file.

        apiVersion: kraftcluster.io/v1alpha1
        kind: KafkaScrub
        metadata: {name: nightly}
        spec:
          directories: [/var/lib/kafka-1, /var/lib/kafka-2]   # or bootstrapServers: host:9092
          topics: ["orders.*"]
          engine: {mode: kubernetes, executors: 4}            # or local, the default

    Raises SpecError naming file and field, and OSError.
    """
    data = read_document(path)
    if not isinstance(data, dict) or data.get("kind") != KIND or data.get("apiVersion") != API_VERSION:
        raise SpecError(f"{path}: not a {KIND} of {API_VERSION}")
    spec = data.get("spec")
    if not isinstance(spec, dict):
        raise SpecError(f"{path}: spec is missing")
    metadata = data.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise SpecError(f"{path}: metadata.name is missing")
    for name in set(data) - {"apiVersion", "kind", "metadata", "spec", "status"}:
        raise SpecError(f"{path}: {name}: unknown field")
    unknown = sorted(set(spec) - FIELDS - OPERATORS, key=str)
    if unknown:
        raise SpecError(f"{path}: spec.{unknown[0]} is not known; there are {', '.join(sorted(FIELDS | OPERATORS))}")
    if "clusterRef" in spec and "bootstrapServers" not in spec:
        raise SpecError(f"{path}: only the operator resolves spec.clusterRef; give spec.bootstrapServers here")
    bootstrap = spec.get("bootstrapServers", "")
    if not isinstance(bootstrap, str):
        raise SpecError(f"{path}: spec.bootstrapServers is {bootstrap!r}, not host:port")
    section = Section(f"{path}: spec.engine", spec.get("engine", {}))
    engine = read_engine(section, SPARKS)
    section.done()
    security = Section(f"{path}: spec.security", spec.get("security", {}))
    properties = read_properties_file(security, path.parent)
    security.done()
    directories, topics = _texts(path, spec, "directories", []), _texts(path, spec, "topics", ["*"])
    return ScrubSpec(directories, bootstrap, topics, metadata["name"], engine, properties)


def _texts(path: Path, spec: dict[str, Any], field: str, default: list[str]) -> tuple[str, ...]:
    values = spec.get(field, default)
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise SpecError(f"{path}: spec.{field} is {values!r}, not a list of texts")
    return tuple(values)
