"""`spec.migration` in the planner: each phase, what prevents the next one, and brokers outside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft_node.metadata.kinds import zk_migration
from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.plan import migration
from kraft_operator.plan.conditions import migrated
from kraft_operator.plan.model import observed as seen
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.observed import ActiveMigration, Aged, ControllerMigration
from kraft_operator.plan.model.record import FINALIZED, FINALIZING, MIGRATED, PREPARING, Record
from kraft_operator.plan.model.situation import MIGRATES, Situation, situation
from kraft_operator.plan.model.steps import Plan
from kraft_operator.plan.model.wanted import Wanted
from kraft_operator.plan.planner import plan
from kraft_operator.report.status import status
from tests.unit.operator.outcomes import restarts
from tests.unit.operator.sample import sample
from tests.unit.operator.world import CLUSTER, World, made, wanted

OUTSIDE = frozenset({11, 12})
DUAL = ActiveMigration("MIGRATION_ACTIVE", "DUAL_WRITE", (), 0, (11, 12))
OVER = replace(DUAL, state="MIGRATION_FINISHED", on_zookeeper=())
Reports = dict[int, ControllerMigration]


def _wanted(phase: str = "Migrate") -> Wanted:
    return wanted(migration=phase, zookeeper="z", outside=OUTSIDE)


def _reports(recorded: int, active: ActiveMigration | None = None, *, enabled: bool = True) -> Reports:
    return {i: ControllerMigration(recorded, enabled, active if i == 1 else None) for i in (1, 2, 3)}


class Migrating(World):
    """A world whose controllers report a migration."""

    reports: Reports

    def observe(self, rng: object = None) -> seen.Observed:
        del rng
        ready = {i: one for i, one in self.reports.items() if i in self.pods and self.pods[i].ready}
        return replace(super().observe(), migration=Aged(ready))


def _run(world: World) -> None:
    """Enough passes for all that can happen: a migration that waits for a person does not settle."""
    for _ in range(150):
        world.step()


def _world(phase: str = MIGRATED, reports: Reports | None = None) -> Migrating:
    """A settled cluster in a phase."""
    world = Migrating(_wanted())
    world.reports = _reports(zk_migration.PRE_MIGRATION)
    _run(world)
    if phase == MIGRATED:
        world.reports = _reports(zk_migration.MIGRATION, DUAL)
        _run(world)
    world.reports = world.reports if reports is None else reports
    world.done.clear()
    return world


def _condition(world: Migrating) -> tuple[str, str]:
    found = migrated(situation(world.record, world.wanted, world.observe()), world.record.migration)
    assert found is not None
    return found.status, found.reason


def _reasons(world: World) -> set[str]:
    return {one.reason for one in world.last.blocked}


def test_states_in_the_metadata_log_are_the_nodes() -> None:
    assert migration.RECORDED_MIGRATION == zk_migration.MIGRATION
    assert migration.RECORDED_END == zk_migration.POST_MIGRATION


def test_brokers_wait_until_the_controllers_have_migrated_the_metadata() -> None:
    world = _world(PREPARING)
    assert sorted(world.pods) == [1, 2, 3]
    assert all(pod.aspects[MIGRATES] == "z" for pod in world.pods.values())

    world.reports = _reports(zk_migration.MIGRATION, DUAL)
    _run(world)

    assert world.record.migration == MIGRATED
    assert sorted(world.pods) == [1, 2, 3, 101, 102, 103]
    assert [i for i, pod in world.pods.items() if MIGRATES in pod.aspects] == [1, 2, 3]


def test_each_blocker_of_the_active_controller_is_reported() -> None:
    blockers = ("broker 11 has not registered here", "broker 12 is fenced")
    world = _world(PREPARING, _reports(zk_migration.PRE_MIGRATION, replace(DUAL, blockers=blockers)))
    world.step()
    assert [one.message for one in world.last.blocked if one.reason == "MigrationBlocked"] == list(blockers)
    assert _condition(world) == ("False", "MigrationBlocked")


def test_controllers_restart_for_another_address_of_zookeeper_while_brokers_wait() -> None:
    world = _world(PREPARING)
    world.wanted = replace(world.wanted, zookeeper="y")
    _run(world)
    assert restarts(world) == [2, 3, 1]


AGAINST = {
    "brokers": (_reports(zk_migration.MIGRATION, DUAL), "broker 11, 12 uses ZooKeeper"),
    "missing": (_reports(zk_migration.MIGRATION, replace(OVER, missing=(11,))), "broker 11 has replicas, but is not"),
    "ignored": (
        _reports(zk_migration.MIGRATION, replace(OVER, ignored=("broker 9 is fenced",))),
        "stop them (broker 9",
    ),
    "driver": (_reports(zk_migration.MIGRATION, replace(OVER, driver="SYNC_KRAFT_TO_ZK")), "SYNC_KRAFT_TO_ZK"),
    "blockers": (_reports(zk_migration.MIGRATION, replace(OVER, blockers=("broker 9 is fenced",))), "broker 9"),
    "lag": (_reports(zk_migration.MIGRATION, replace(OVER, lag=3)), "lacks 3 metadata records"),
    "no active": (_reports(zk_migration.MIGRATION), "no controller reports"),
    "silent": ({i: one for i, one in _reports(1, OVER).items() if i != 3}, "controller 3 does not report"),
    "without keys": ({**_reports(1, OVER), 2: ControllerMigration(1, False)}, "controller 2 runs without the keys"),
}


@pytest.mark.parametrize("case", AGAINST)
def test_the_end_waits_and_names_what_prevents_it(case: str) -> None:
    reports, text = AGAINST[case]
    world = _world(MIGRATED, reports)
    world.wanted = _wanted("Finalized")
    for _ in range(5):
        world.step()
        assert world.record.migration == MIGRATED
        assert any(one.reason == "MigrationNotFinalized" and text in one.message for one in world.last.blocked)
    assert not world.actions(do.Restart)


def test_an_unknown_state_prevents_the_end() -> None:
    world = _world(MIGRATED, _reports(1, OVER))
    world.wanted = _wanted("Finalized")
    old = replace(world.observe(), migration=Aged(_reports(1, OVER), 60_000))
    assert "MigrationNotFinalized" in {one.reason for one in plan(world.record, world.wanted, old, CLUSTER).blocked}


def test_the_end_is_only_recorded_after_a_second_look() -> None:
    world = _world(MIGRATED, _reports(1, OVER))
    world.wanted = _wanted("Finalized")
    step = plan(world.record, world.wanted, world.observe(), CLUSTER).guarded
    assert isinstance(step, do.Remember)
    assert step.record.migration == FINALIZING


def test_controllers_lose_the_keys_one_by_one_and_the_active_one_last() -> None:
    world = _world(MIGRATED, _reports(1, OVER))
    assert _condition(world) == ("False", "ReadyToFinalize")
    world.wanted = _wanted("Finalized")
    leader = world.leader()
    _run(world)
    assert restarts(world) == [*sorted({1, 2, 3} - {leader}), leader]
    assert not any(MIGRATES in pod.aspects for pod in world.pods.values())
    assert world.record.migration == FINALIZING

    world.reports = _reports(zk_migration.POST_MIGRATION, enabled=False)
    _run(world)
    assert world.record.migration == FINALIZED
    assert _condition(world) == ("True", "Finalized")


def test_a_phase_does_not_go_back() -> None:
    world = _world(MIGRATED, _reports(1, OVER))
    world.record = replace(world.record, migration=FINALIZED)
    _run(world)
    world.wanted = _wanted("Migrate")
    world.done.clear()
    _run(world)
    assert world.record.migration == FINALIZED
    assert not any(MIGRATES in pod.aspects for pod in world.pods.values())


@pytest.mark.parametrize("phase", [PREPARING, MIGRATED])
def test_a_removed_migration_is_refused_until_it_is_finalized(phase: str) -> None:
    world = _world(phase)
    world.wanted = wanted()
    world.step()
    assert _reasons(world) == {"MigrationUnfinished"}
    assert world.last.steps == []


def test_a_finalized_migration_may_be_removed() -> None:
    world = _world()
    world.record = replace(world.record, migration=FINALIZED)
    world.wanted = wanted()
    _run(world)
    assert _reasons(world) == set()


def test_a_cluster_with_metadata_of_its_own_does_not_migrate() -> None:
    world = made()
    world.wanted = _wanted()
    world.done.clear()
    world.step()
    assert _reasons(world) == {"MigrationRefused"}
    assert world.done == []


def test_a_new_cluster_is_not_finalized_from_the_beginning() -> None:
    blocked = plan(Record(), _wanted("Finalized"), World(wanted()).observe(), CLUSTER).blocked
    assert [one.reason for one in blocked] == ["MigrationNotStarted"]


def test_no_node_gets_the_id_of_a_broker_outside() -> None:
    world = World(replace(_wanted(), outside=frozenset({101, 103})))
    world.step()
    assert [node.id for node in world.record.nodes if node.broker] == [102, 104, 105]


def _beside(world: Migrating, *, fenced: bool) -> seen.Observed:
    """Each partition has replicas on broker 101 and on the brokers outside."""
    view = world.observe()
    metadata = view.metadata.value
    assert metadata is not None
    partition = seen.Partition("t", 0, (101, 11, 12), frozenset({101, 11, 12}), 2)
    brokers = {**metadata.brokers, **{i: seen.Broker(fenced) for i in OUTSIDE}}
    return replace(view, metadata=Aged(replace(metadata, brokers=brokers, partitions=(partition,))))


@pytest.mark.parametrize("fenced", [False, True])
def test_replicas_on_brokers_outside_count_while_these_are_not_fenced(fenced: bool) -> None:
    world = _world()
    asked = replace(world.wanted, rolls={101: "now"})
    found = plan(world.record, asked, _beside(world, fenced=fenced), CLUSTER)
    assert ("PartitionAtRisk" in {one.reason for one in found.blocked}) is fenced
    assert bool(found.disruptive) is not fenced


def test_brokers_outside_are_left_alone() -> None:
    world = _world()
    found = plan(world.record, world.wanted, _beside(world, fenced=False), CLUSTER)
    assert not [step for step in found.steps if isinstance(step, do.Unregister | do.Reassign | do.Stop)]


def test_replicas_leave_brokers_outside_on_request() -> None:
    world = _world()
    asked = replace(world.wanted, outside_leave=True)
    found = plan(world.record, asked, _beside(world, fenced=False), CLUSTER)
    (step,) = [step for step in found.steps if isinstance(step, do.Reassign)]
    assert step.moves == {("t", 0): (101, 102, 103)}


def test_metadata_version_waits_for_the_end() -> None:
    world = _world()
    world.wanted = replace(world.wanted, metadata_version=30)
    world.step()
    assert not world.actions(do.SetFeature)
    assert any("migration from ZooKeeper" in text for text in world.last.waits)


def _situation(world: World, view: seen.Observed) -> Situation:
    found = situation(world.record, world.wanted, view)
    assert found is not None
    return found


def test_brokers_outside_are_stopped_once_they_have_no_replicas() -> None:
    world = _world()
    view = _beside(world, fenced=False)
    s = _situation(world, view)
    assert migration.partitions_outside(s) == 1
    assert "has replicas of 1 partitions: move its replicas away" in str(migration.reason_against_end(s))

    metadata = view.metadata.value
    assert metadata is not None
    moved = seen.Partition("t", 0, (101, 102, 103), frozenset({101, 102, 103}), 2)
    s = _situation(world, replace(view, metadata=Aged(replace(metadata, partitions=(moved,)))))
    assert migration.partitions_outside(s) == 0
    assert "has no replicas: stop it, and unregister it" in str(migration.reason_against_end(s))


def test_an_incomplete_view_does_not_count_partitions_outside() -> None:
    world = _world()
    view = _beside(world, fenced=False)
    metadata = view.metadata.value
    assert metadata is not None
    unseen = replace(view, metadata=Aged(replace(metadata, unseen="a topic is hidden")))
    for one in (unseen, replace(view, metadata=Aged())):
        s = _situation(world, one)
        assert migration.partitions_outside(s) is None
        assert "uses ZooKeeper: move its replicas away" in str(migration.reason_against_end(s))


def test_the_status_keeps_the_number_of_partitions_outside_while_it_is_unknown() -> None:
    world = _world()
    view = _beside(world, fenced=False)

    def reported(seen_now: seen.Observed, before: KRaftClusterStatus) -> KRaftClusterStatus:
        s, now = _situation(world, seen_now), "2026-01-01T00:00:00Z"
        return status(sample(), world.record, s, Plan(), before, generation=1, now=now)

    known = reported(view, KRaftClusterStatus())
    unknown = reported(replace(view, metadata=Aged()), known)
    assert [one.migration and one.migration.partitions_outside for one in (known, unknown)] == [1, 1]
