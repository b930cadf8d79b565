"""ConfigRecord: dynamic configuration of topics, brokers, groups and client metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kraft_node.metadata.kinds.kind import VERSION_0, AnyKind, AppendFollower, FrozenImage, RecordKind
from kraft_protocol.wire import stored

if TYPE_CHECKING:
    from kraft_node.metadata.store import MetadataStore


def _replay(store: MetadataStore, record: stored.ConfigRecord) -> None:
    key = (record.resource_type, record.resource_name)
    values = dict(store.configs.get(key) or {})
    if record.value is None:
        values.pop(record.name, None)
    else:
        values[record.name] = record.value
    if values:
        store.configs.put(key, values)
    else:
        store.configs.remove(key)


def _appended(active: AppendFollower, record: stored.ConfigRecord) -> None:
    active.config_changed(record.resource_type, record.resource_name)


def _snapshot(image: FrozenImage) -> Iterator[stored.ConfigRecord]:
    for (kind, resource), values in image.cells("configs"):
        for name, value in values.items():
            yield stored.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


KINDS: Final[tuple[AnyKind, ...]] = (
    RecordKind(
        name="ConfigRecord",
        versions=VERSION_0,
        mark=None,
        changes=("configs",),
        replay=_replay,
        index=None,
        names=None,
        entries=None,
        stale=None,
        appended=_appended,
        snapshot=_snapshot,
    ),
)
