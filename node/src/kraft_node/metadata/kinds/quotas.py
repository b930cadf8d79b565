"""ClientQuotaRecord: quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kraft_node.metadata.kinds.kind import VERSION_0, AnyKind, FrozenImage, RecordKind
from kraft_protocol.wire import stored

if TYPE_CHECKING:
    from kraft_node.metadata.store import MetadataStore


def _replay(store: MetadataStore, record: stored.ClientQuotaRecord) -> None:
    entity = tuple(sorted(((e.entity_type, e.entity_name) for e in record.entity), key=lambda pair: pair[0]))
    values = dict(store.quotas.get(entity) or {})
    if record.remove:
        values.pop(record.key, None)
    else:
        values[record.key] = record.value
    if values:
        store.quotas.put(entity, values)
    else:
        store.quotas.remove(entity)


def _snapshot(image: FrozenImage) -> Iterator[stored.ClientQuotaRecord]:
    part = stored.ClientQuotaRecord.EntityData
    for entity, values in image.cells("quotas"):
        for key, value in values.items():
            data = [part(entity_type=kind, entity_name=name) for kind, name in entity]
            yield stored.ClientQuotaRecord(entity=data, key=key, value=value, remove=False)


KINDS: Final[tuple[AnyKind, ...]] = (
    RecordKind(
        name="ClientQuotaRecord",
        versions=VERSION_0,
        mark=None,
        changes=("quotas",),
        replay=_replay,
        index=None,
        names=None,
        entries=None,
        stale=None,
        appended=None,
        snapshot=_snapshot,
    ),
)
