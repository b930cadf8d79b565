"""RegisterControllerRecord: the controllers and their listeners (KIP-919)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kraft_node.metadata.brokers import ControllerRegistration, controller_of_record, flat_features
from kraft_node.metadata.features import CONTROLLER_REGISTRATION_SUPPORTED
from kraft_node.metadata.kinds.kind import VERSION_0, AnyKind, FrozenImage, RecordKind
from kraft_protocol.wire import stored

if TYPE_CHECKING:
    from kraft_node.metadata.store import MetadataStore


def _replay(store: MetadataStore, record: stored.RegisterControllerRecord) -> None:
    store.controllers.put(record.controller_id, controller_of_record(record))


def _snapshot(image: FrozenImage) -> Iterator[stored.RegisterControllerRecord]:
    if image.metadata_level >= CONTROLLER_REGISTRATION_SUPPORTED:
        for _, controller in image.cells("controllers"):
            yield _record(controller)


def _record(controller: ControllerRegistration) -> stored.RegisterControllerRecord:
    kind = stored.RegisterControllerRecord
    return kind(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[kind.ControllerEndpoint(*endpoint) for endpoint in controller.endpoints.values()],
        features=[kind.ControllerFeature(*triple) for triple in flat_features(controller.features)],
    )


KINDS: Final[tuple[AnyKind, ...]] = (
    RecordKind(
        name="RegisterControllerRecord",
        versions=VERSION_0,
        mark=None,
        changes=("controllers",),
        replay=_replay,
        index=None,
        names=None,
        entries=None,
        stale=None,
        appended=None,
        snapshot=_snapshot,
    ),
)
