"""The kinds of pipelines, and what they differ in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraft_operator.api.pipelines import KafkaMetadataArchiveSpec, KafkaScrubSpec, KafkaTableSpec, PipelineSpec


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of resource."""

    name: str
    spec: type[PipelineSpec]
    suffix: str
    """Of its objects' names."""
    command: tuple[str, ...]
    """Of `kraft-pipeline`, the file aside."""

    @property
    def plural(self) -> str:
        return f"{self.name.lower()}s"


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("KafkaTable", KafkaTableSpec, "table", ("table", "run")),
        Kind("KafkaMetadataArchive", KafkaMetadataArchiveSpec, "archive", ("meta", "archive", "-f")),
        Kind("KafkaScrub", KafkaScrubSpec, "scrub", ("scrub", "run", "-f")),
    )
}
