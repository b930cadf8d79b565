"""The kinds of pipelines, and how they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraft_operator.api.pipelines import KafkaMetadataArchiveSpec, KafkaScrubSpec, KafkaTableSpec, PipelineSpec


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of pipeline resource."""

    name: str
    spec: type[PipelineSpec]
    suffix: str
    """The suffix of its objects' names."""
    command: tuple[str, ...]
    """Arguments of `kraft-pipeline`; the path of the file follows them."""

    @property
    def plural(self) -> str:
        """The plural name of the kind in the API."""
        return f"{self.name.lower()}s"


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("KafkaTable", KafkaTableSpec, "table", ("table", "run")),
        Kind("KafkaMetadataArchive", KafkaMetadataArchiveSpec, "archive", ("meta", "archive", "-f")),
        Kind("KafkaScrub", KafkaScrubSpec, "scrub", ("scrub", "run", "-f")),
    )
}
