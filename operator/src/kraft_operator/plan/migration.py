"""The phases of a migration from ZooKeeper (KIP-866).

    Preparing   controllers have the keys of the migration; brokers of pools wait, because they cannot register yet
    Migrated    the metadata is in the log, and each change goes to ZooKeeper, too; brokers of pools run
    Finalizing  on request, and once no broker uses ZooKeeper: controllers restart without the keys
    Finalized   all controllers run without the keys, and the log has the end of the migration

A phase never goes back. What a controller does not report is unknown, and unknown prevents the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from kraft_operator.plan.model.observed import ActiveMigration
from kraft_operator.plan.model.record import FINALIZED, FINALIZING, MIGRATED, PREPARING
from kraft_operator.plan.model.situation import Situation
from kraft_operator.plan.model.steps import Remember

RECORDED_MIGRATION: Final = 1
RECORDED_END: Final = 3
"""States in the metadata log: the metadata is migrated, and the migration is over. A test compares them with the node's
states."""
DUAL_WRITE: Final = "DUAL_WRITE"


def active_migration(s: Situation) -> ActiveMigration | None:
    """The report of the active controller; None if it is unknown, or two controllers claim to be active."""
    found = [one.active for one in s.migration.values() if one.active is not None]
    return found[0] if len(found) == 1 else None


def partitions_outside(s: Situation) -> int | None:
    """The number of partitions with a replica on a broker outside; None if it is unknown."""
    if s.metadata is None or s.metadata.unseen:
        return None
    return sum(any(map(s.outside, partition.replicas)) for partition in s.metadata.partitions)


def migrate(s: Situation) -> None:
    """Plan the next phase of the migration, or report what prevents it."""
    phase = s.record.migration
    if phase in {"", FINALIZED} or s.wanted.hibernated:
        return
    reports = s.migration.values()
    if phase == PREPARING:
        active = active_migration(s)
        if any(one.recorded in {RECORDED_MIGRATION, RECORDED_END} for one in reports):
            _remember(s, MIGRATED, "the metadata is migrated from ZooKeeper")
        elif active is not None and active.blockers:
            for text in active.blockers:
                s.plan.block("MigrationBlocked", text)
        else:
            s.plan.waits.append("the controllers migrate the metadata from ZooKeeper")
    elif phase == MIGRATED and s.wanted.migration == FINALIZED:
        against = reason_against_end(s)
        if against is None:
            _remember(s, FINALIZING, "no broker uses ZooKeeper: the migration ends", guarded=True)
        else:
            s.plan.block("MigrationNotFinalized", against)
    elif phase == FINALIZING:
        missing = sorted(set(_controllers(s)) - s.migration.keys())
        if not missing and all(one.recorded == RECORDED_END and not one.enabled for one in reports):
            _remember(s, FINALIZED, "the migration from ZooKeeper is finalized")
        else:
            s.plan.waits.append("the controllers restart without ZooKeeper")


def reason_against_end(s: Situation) -> str | None:
    """Why the migration must not end now; None if it may."""
    silent = sorted(set(_controllers(s)) - s.migration.keys())
    if silent:
        return f"controller {_ids(silent)} does not report the state of the migration: it must run and answer /status"
    without = sorted(i for i, one in s.migration.items() if not one.enabled)
    if without:
        return f"controller {_ids(without)} runs without the keys of the migration: it must restart first"
    active = active_migration(s)
    if active is None:
        return "no controller reports that it is active: the brokers that use ZooKeeper are unknown"
    if active.on_zookeeper:
        return _against_brokers(active.on_zookeeper, partitions_outside(s))
    if active.missing:
        has = f"broker {_ids(active.missing)} has replicas, but is not registered"
        return f"{has}: start it, or move its replicas away; without replicas it may stay unregistered"
    if active.ignored:
        return f"brokers run with ZooKeeper, but take no part in the migration: stop them ({'; '.join(active.ignored)})"
    if active.driver != DUAL_WRITE:
        return f"the driver of the migration is in {active.driver}, not in {DUAL_WRITE}"
    if active.blockers:
        return f"the migration is blocked: {'; '.join(active.blockers)}"
    if active.lag:
        return f"ZooKeeper lacks {active.lag} metadata records"
    return None


def _against_brokers(brokers: Iterable[int], partitions: int | None) -> str:
    """What to do with brokers that use ZooKeeper. `partitions`: those with a replica there; None if unknown."""
    text = f"broker {_ids(brokers)} uses ZooKeeper"
    if partitions == 0:
        return f"{text} and has no replicas: stop it, and unregister it"
    has = "" if partitions is None else f" and has replicas of {partitions} partitions"
    return f"{text}{has}: move its replicas away, stop it, and unregister it; or restart it without ZooKeeper"


def _controllers(s: Situation) -> list[int]:
    return [node.id for node in s.record.nodes if s.votes(node) and not node.stopped]


def _remember(s: Situation, phase: str, why: str, *, guarded: bool = False) -> None:
    """Write the phase, unless the plan writes the record already: then the next pass does it."""
    if not any(isinstance(step, Remember) for step in s.plan.steps):
        s.plan.steps.append(Remember(replace(s.record, migration=phase), why, guarded))


def _ids(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))
