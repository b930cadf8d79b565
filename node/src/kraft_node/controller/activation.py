"""The first records of a new active controller.

On an empty log: the records that the storage tool put into `bootstrap.checkpoint` (features, SCRAM users). If the
metadata.version has metadata transactions (KIP-868), the records are written in a transaction, so that no node ever
sees half of a new cluster. On any other log: the end of a transaction that a predecessor left open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kraft_node.base.config.resources import BROKER_RESOURCE
from kraft_node.controller.settings.features import MIN_ISR
from kraft_node.metadata.features import (
    ELR_VERSION,
    METADATA_TRANSACTIONS_SUPPORTED,
    METADATA_VERSION,
    MINIMUM_METADATA_VERSION,
)
from kraft_protocol.wire.stored import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)


def activation_records(
    *,
    is_empty: bool,
    in_transaction: bool,
    bootstrap: Sequence[Any],
    static_min_isr: int,
    migration: Callable[..., list[Any]],
) -> list[Any]:
    """The records, in order; empty if the log needs no records. `is_empty`: the log holds no metadata.version yet.

    `migration` returns the records of a migration from ZooKeeper (`ControllerMigration.first_records`).
    """
    records: list[Any] = []
    if in_transaction:
        records.append(AbortTransactionRecord(reason="Controller failover"))
    levels = {r.name: r.feature_level for r in bootstrap if isinstance(r, FeatureLevelRecord)}
    level = levels.get(METADATA_VERSION, MINIMUM_METADATA_VERSION)
    migrated = migration(is_empty=is_empty, level=level)
    if not is_empty:
        return records + migrated
    transactional = level >= METADATA_TRANSACTIONS_SUPPORTED
    if transactional:
        records.append(BeginTransactionRecord(name="Bootstrap records"))
    records += bootstrap
    if levels.get(ELR_VERSION, 0) > 0:
        records.append(
            ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=MIN_ISR, value=str(static_min_isr))
        )
    records += migrated
    if transactional:
        records.append(EndTransactionRecord())
    return records
