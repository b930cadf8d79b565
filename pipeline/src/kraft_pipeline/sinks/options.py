"""The options of the sink, with the names of Spark's `kafka` sink and of its producer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kraft_pipeline.codec.encode import BATCH_BYTES
from kraft_pipeline.sources.options import refuse, settings_of
from kraft_protocol.client.cluster import Settings
from kraft_protocol.records.compression import Compression

NOT_FOR_WRITERS: Final = (
    "kafka.interceptor.classes",
    "kafka.key.serializer",
    "kafka.partitioner.class",
    "kafka.value.serializer",
)
"""Options that would change records or their partitions, which this sink does not support."""
CODECS: Final = {codec.name.lower(): codec for codec in Compression}
"""The values of `kafka.compression.type`."""
BATCH_BYTES_MAX: Final = 1 << 30
TRANSACTION_MS: Final = 300_000
"""Default of `kafka.transaction.timeout.ms`: brokers allow 15 minutes."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed options of a writer."""

    settings: Settings
    topic: str | None
    """Topic of all rows; None to use the column `topic`."""
    codec: int
    batch_bytes: int
    timeout_ms: int
    transactional_id: str = ""
    """Prefix of the transactional ids of tasks; "" to write without transactions."""
    transaction_ms: int = TRANSACTION_MS


KINDS: Final = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int", "bigint"),
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""Types of columns, as Spark names them."""


def check_kinds(kinds: Mapping[str, str]) -> None:
    """Raise ValueError for a column with a type that is not in `KINDS`."""
    for name, allowed in KINDS.items():
        if name in kinds and kinds[name] not in allowed:
            raise ValueError(f"column {name} is {kinds[name]}: it must be {' or '.join(allowed)}")


def parse_sink(options: Mapping[str, str], columns: Sequence[str]) -> SinkOptions:
    """Parse the options for a write of `columns`. Raises ValueError for wrong options and missing columns."""
    given = {name.lower(): value for name, value in options.items()}
    topic = given.get("topic") or None
    if "value" not in columns:
        raise ValueError(f"column value is missing; the columns are {', '.join(columns)}")
    if topic is None and "topic" not in columns:
        raise ValueError("no topic is given: set the option topic or add a column topic")
    refuse(options, NOT_FOR_WRITERS, "is not for this sink, which writes bytes as they are and partitions by key")
    codec = given.get("kafka.compression.type", "none").lower()
    if codec not in CODECS:
        raise ValueError(f"option kafka.compression.type: {codec!r} is not one of {', '.join(CODECS)}")
    if given.get("kafka.acks", "all") not in {"all", "-1"}:
        raise ValueError("option kafka.acks: an idempotent producer has only all")
    return SinkOptions(
        settings=settings_of(options),
        topic=topic,
        codec=CODECS[codec],
        batch_bytes=_number(given, "kafka.batch.size", BATCH_BYTES, BATCH_BYTES_MAX),
        timeout_ms=_number(given, "kafka.request.timeout.ms", 30_000, 1 << 31),
        transactional_id=given.get("kafka.transactional.id", ""),
        transaction_ms=_number(given, "kafka.transaction.timeout.ms", TRANSACTION_MS, 1 << 31),
    )


def _number(given: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = given.get(name, str(default))
    if not text.isdecimal() or not 0 < int(text) < most:
        raise ValueError(f"option {name}: {text!r} is not a number between 0 and {most}")
    return int(text)
