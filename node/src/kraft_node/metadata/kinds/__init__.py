"""The registry of metadata records: what each kind does to image, index, names, delta, snapshot and transactions.

An entry (`kind.RecordKind`) answers every question about one kind of record; no answer has a default. Families of
kinds that share a part of the image share a file. Nothing else in the node decides by the kind of a record. `image`
and `overlay` replay through the registry. `loader` and `overlay` get the marks of transactions from it, `snapshot` the
records of a section, `log_batches` the versions. The controller gets from it the rules for derived data.

A process does not start with an incomplete registry: each record in the schemas of this release has exactly one entry.
To add a kind, add its entry to the family's `KINDS`. To add a family, add its file and a place in FAMILIES.

The partitions of large snapshots go around single records, in bulk: see `topics.py` here, and `metadata.bulk`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kraft_node.metadata.kinds import (
    access,
    brokers,
    configs,
    controllers,
    delegation,
    feature_levels,
    markers,
    producer_ids,
    quotas,
    scram,
    topics,
    zk_migration,
)
from kraft_node.metadata.kinds.kind import TOPICS, AnyKind
from kraft_node.metadata.partitions import MetadataError
from kraft_node.metadata.records import RECORD_TYPES

if TYPE_CHECKING:
    from kraft_protocol.wire.classes import Message

FAMILIES: Final = (
    feature_levels.KINDS,
    brokers.KINDS,
    controllers.KINDS,
    topics.KINDS,
    configs.KINDS,
    quotas.KINDS,
    producer_ids.KINDS,
    access.KINDS,
    scram.KINDS,
    delegation.KINDS,
    zk_migration.KINDS,
    markers.KINDS,
)
"""In the order of Apache Kafka's snapshots."""


def registry(kinds: Iterable[AnyKind], record_types: Mapping[int, str]) -> dict[int, AnyKind]:
    """The kinds by record type. Raises ValueError unless each record type has exactly one complete entry."""
    kinds = list(kinds)
    numbers = {name: number for number, name in record_types.items()}
    names = sorted(kind.name for kind in kinds)
    if names != sorted(numbers):
        raise ValueError(f"the kinds of metadata records are {names}, the schemas have {sorted(numbers)}")
    parts = sorted(kind.changes[0] for kind in kinds if kind.snapshot is not None)
    if parts != sorted({part for kind in kinds for part in kind.changes}):
        raise ValueError(f"each part of the store needs one kind that writes its snapshot; these have one: {parts}")
    for kind in kinds:
        is_derived = kind.index is not None or kind.names is not None or kind.entries is not None
        if (kind.stale is not None) != is_derived:
            raise ValueError(f"{kind.name} must set `stale` if and only if it sets `index`, `names` or `entries`")
    return {numbers[kind.name]: kind for kind in kinds}


KINDS: Final = registry((kind for family in FAMILIES for kind in family), RECORD_TYPES)
"""Record type (the schema's `api_key`) -> kind."""

SNAPSHOT_KINDS: Final = tuple(kind for kind in KINDS.values() if kind.snapshot is not None)
"""The kinds that write a section's snapshot, in the order of the snapshot."""

SECTION_NAMES: Final = tuple(kind.changes[0] for kind in SNAPSHOT_KINDS if kind.changes[0] != TOPICS)
"""The keyed sections of image, overlay and delta."""


_BY_CLASS: Final[dict[type, AnyKind]] = {}
"""Filled on first use, like the classes. Decoded objects belong to a subclass, which has its own entry."""


def kind_of(record: Message) -> AnyKind:
    """The kind of a metadata record. Raises MetadataError for any other message."""
    try:
        return _BY_CLASS[type(record)]
    except KeyError:
        return _kind_of_class(type(record))


def _kind_of_class(cls: type[Message]) -> AnyKind:
    schema = getattr(cls, "SCHEMA", None)
    kind = None if schema is None else KINDS.get(schema.api_key)
    if schema is None or kind is None or (schema.kind, schema.name) != ("metadata", kind.name):
        raise MetadataError(f"{cls.__name__} is not a record of the metadata log")
    _BY_CLASS[cls] = kind
    return kind
