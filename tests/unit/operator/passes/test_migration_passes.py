"""Whole passes over a cluster that migrates from ZooKeeper: the controllers' pages, `status.migration` and Events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kraft_operator.observe import kafka
from kraft_operator.observe.status import parsed
from kraft_operator.plan.model.observed import ActiveMigration, ControllerMigration
from kraft_operator.plan.model.record import FINALIZED, MIGRATED
from kraft_operator.plan.model.situation import situation
from kraft_operator.plan.model.steps import Plan
from kraft_operator.specs.pods import FILE
from tests.unit.operator.fake_kubernetes import FakeApi
from tests.unit.operator.reconciling import KEY, condition, new_api, new_operator, pods_of
from tests.unit.operator.sample import CLUSTER_ID
from tests.unit.operator.world import made

PAGE = {
    "nodeId": 1,
    "clusterId": CLUSTER_ID,
    "voters": [1, 2, 3],
    "configRevision": "x",
    "offset": 7,
    "topics": 1,
    "zkMigrationState": 1,
    "migration": {
        "state": "MIGRATION_ACTIVE",
        "isActive": True,
        "driver": "DUAL_WRITE",
        "blockers": ["b"],
        "lagRecords": 2,
        "zookeeperBrokers": [5001],
        "waitingBrokers": [5001],
        "missingBrokers": [5002],
        "incompatibleBrokers": ["i"],
    },
}


def test_the_page_of_a_controller_is_understood() -> None:
    active = ActiveMigration("MIGRATION_ACTIVE", "DUAL_WRITE", ("b",), 2, (5001,), (5001,), (5002,), ("i",))
    assert parsed(PAGE).migration == ControllerMigration(1, True, active)
    other = {**PAGE, "migration": {**PAGE["migration"], "isActive": False}}  # type: ignore[dict-item]
    assert parsed(other).migration == ControllerMigration(1, True)
    without = {key: value for key, value in PAGE.items() if key != "migration"}
    assert parsed({**without, "zkMigrationState": 3}).migration == ControllerMigration(3, False)
    early = {key: value for key, value in without.items() if key != "zkMigrationState"}
    assert parsed(early).migration is None


def test_a_page_without_a_needed_field_is_no_answer() -> None:
    page: dict[str, Any] = {**PAGE, "migration": {"isActive": True}}
    with pytest.raises(KeyError):
        parsed(page)


def _events(api: FakeApi) -> list[str]:
    return [
        one["message"] for (kind, *_), one in api.objects.items() if kind == "Event" and one["reason"] == "Migration"
    ]


def _files(api: FakeApi) -> list[str]:
    return [one["data"][FILE] for (kind, *_), one in api.objects.items() if kind == "ConfigMap" and FILE in one["data"]]


def test_passes_follow_a_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    active = ActiveMigration("MIGRATION_READY", "WAIT_FOR_BROKERS", ("broker 5001 has not registered here",), 0, ())
    reports = {1: ControllerMigration(2, True, active), 2: ControllerMigration(2, True)}

    async def reported(controllers: Mapping[int, object]) -> dict[int, ControllerMigration]:
        assert not controllers, "pods of this API server have no addresses"
        return dict(reports)

    monkeypatch.setattr(kafka, "reported_migration", reported)

    async def main() -> None:
        api = new_api()
        spec = api.objects["KRaftCluster", *KEY]["spec"]
        spec |= {"clusterId": CLUSTER_ID, "metadataVersion": "3.9"}
        spec["migration"] = {"zookeeper": {"connect": "zk:2181"}, "brokers": [5001]}
        operator = new_operator(api)

        async def passes() -> dict[str, Any]:
            for _ in range(20):
                await operator.reconcile(KEY)
                api.work()
            return dict(api.objects["KRaftCluster", *KEY]["status"]["migration"])

        found = await passes()
        assert pods_of(api) == ["sample-1", "sample-2", "sample-3"]
        assert found["phase"] == "Preparing"
        assert found["blockers"] == ["broker 5001 has not registered here"]
        assert condition(api, "Degraded")["reason"] == "MigrationBlocked"
        assert sum("zookeeper.connect=zk:2181" in text for text in _files(api)) == 3

        reports[1] = ControllerMigration(1, True, ActiveMigration("MIGRATION_ACTIVE", "DUAL_WRITE", (), 0, (5001,)))
        found = await passes()
        assert len(pods_of(api)) == 6
        assert (found["phase"], found["brokersOnZookeeper"]) == ("Migrated", [5001])
        assert condition(api, "Migrated")["reason"] == "BrokersOnZooKeeper"
        assert any("phase Migrated" in text and "brokers with ZooKeeper: 5001" in text for text in _events(api))

        del api.objects["KRaftCluster", *KEY]["spec"]["migration"]  # as with definitions that lack the rule
        api.writes.clear()
        await passes()
        assert condition(api, "Degraded")["reason"] == "MigrationUnfinished"
        assert not [kind for _, kind, _ in api.writes if kind == "Pod"]
        operator.close()

    asyncio.run(main())


@pytest.mark.parametrize(("phase", "seconds"), [("", 30.0), (MIGRATED, 5.0), (FINALIZED, 30.0)])
def test_a_cluster_that_migrates_is_looked_at_often_as_no_watch_shows_its_progress(phase: str, seconds: float) -> None:
    async def main() -> None:
        world = made()
        s = situation(replace(world.record, migration=phase), world.wanted, world.observe())
        operator = new_operator(new_api())
        memory = operator._memory(KEY)
        memory.patience.known_at = time.monotonic()
        assert operator._next(memory, Plan(), s) == seconds
        operator.close()

    asyncio.run(main())
