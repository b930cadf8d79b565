"""FeatureLevelRecord: the finalized levels of features (KIP-584, KIP-778)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kraft_node.metadata.features import KRAFT_VERSION, METADATA_VERSION, metadata_version
from kraft_node.metadata.kinds.kind import VERSION_0, AnyKind, FrozenImage, RecordKind
from kraft_node.metadata.partitions import MetadataError
from kraft_protocol.wire import stored

if TYPE_CHECKING:
    from kraft_node.metadata.store import MetadataStore


def _replay(store: MetadataStore, record: stored.FeatureLevelRecord) -> None:
    if record.name == METADATA_VERSION:
        try:
            metadata_version(record.feature_level)
        except ValueError as e:
            raise MetadataError(str(e)) from None
    if record.name == KRAFT_VERSION:
        return
    if record.feature_level == 0:
        store.features.remove(record.name)
    else:
        store.features.put(record.name, record.feature_level)


def _snapshot(image: FrozenImage) -> Iterator[stored.FeatureLevelRecord]:
    finalized = dict(image.cells("features"))
    if METADATA_VERSION in finalized:
        yield stored.FeatureLevelRecord(name=METADATA_VERSION, feature_level=finalized.pop(METADATA_VERSION))
    for name, level in sorted(finalized.items()):
        yield stored.FeatureLevelRecord(name=name, feature_level=level)


KINDS: Final[tuple[AnyKind, ...]] = (
    RecordKind(
        name="FeatureLevelRecord",
        versions=VERSION_0,
        mark=None,
        changes=("features",),
        replay=_replay,
        index=None,
        names=None,
        entries=None,
        stale=None,
        appended=None,
        snapshot=_snapshot,
    ),
)
