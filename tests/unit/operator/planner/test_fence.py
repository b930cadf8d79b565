"""Disruptive steps run alone, on current views, once; a broker's disk is given up only after a second look."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pytest

from kraft_operator.kube.client import ApiError
from kraft_operator.plan.gates import isr_without
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.situation import AGE_MAX_MS, situation
from kraft_operator.plan.model.steps import Plan
from kraft_operator.plan.model.wanted import ReplacementRequest
from kraft_operator.plan.planner import plan
from tests.unit.operator.reconciling import KEY, new_api, new_operator, settle
from tests.unit.operator.world import World, made, wanted


def _crash(world: World, node_id: int) -> None:
    """A broker dies, and the controller has not noticed: it is in its ISRs and not fenced."""
    world.pods[node_id].broken = True


def test_a_replica_on_a_stopped_broker_is_not_in_sync() -> None:
    world = made()
    observed = world.observe()
    s = situation(world.record, world.wanted, observed)
    assert s is not None
    assert isr_without(s, (101,)) is None
    del world.pods[103]
    kube = replace(observed.kube, value=world.observe().kube.value)
    s = situation(world.record, world.wanted, replace(observed, kube=kube))
    assert s is not None
    blocked = isr_without(s, (101,))
    assert blocked is not None
    assert blocked.reason == "PartitionAtRisk"
    assert "103" in blocked.message


def test_an_empty_disk_waits_while_another_broker_is_down_and_not_fenced() -> None:
    world = made()
    _crash(world, 103)
    world.wanted = wanted(replacements=(ReplacementRequest("disk", 101, "EmptyDisk"),))
    for _ in range(5):
        observed = world.observe()
        metadata = observed.metadata.value
        assert metadata is not None
        unfenced = {i: replace(broker, fenced=False) for i, broker in metadata.brokers.items()}
        observed = replace(observed, metadata=replace(observed.metadata, value=replace(metadata, brokers=unfenced)))
        world.observe = lambda _rng=None, seen=observed: seen  # type: ignore[method-assign, misc]
        world.step()
        del world.observe  # type: ignore[method-assign]
        for partition in world.partitions.values():
            partition.isr = set(partition.replicas)
    assert not world.actions(do.Stop)
    assert world.pods[101].stopping is None


def test_a_disk_that_has_become_the_last_in_sync_is_not_swapped() -> None:
    """Between the stop and the swap the other replicas left the ISR."""
    world = made()
    world.wanted = wanted(replacements=(ReplacementRequest("disk", 101, "EmptyDisk"),))
    while not world.actions(do.Stop):
        world.step()
    while 101 in world.pods:
        world.tick()
    for partition in world.partitions.values():
        partition.isr = {101}
    world.step()
    assert not world.record.replacements, "it starts again on its disk, and the others catch up from it"
    for partition in world.partitions.values():
        partition.isr = {101}
    while 101 not in world.pods:
        world.step()
        for partition in world.partitions.values():
            partition.isr = {101}
    node = world.record.node(101)
    assert node is not None
    assert node.disk == 0
    world.settle()
    node = world.record.node(101)
    assert node is not None
    assert node.disk == 1, "once the others have everything"


def test_a_restart_is_planned_alone_after_values_are_set() -> None:
    world = made()
    world.wanted = wanted(image="b", dynamic_config={"min.insync.replicas": "2"})
    restarts = 0
    while not restarts:
        world.step()
        if world.last.disruptive is not None:
            restarts += 1
            assert world.last.steps == [world.last.disruptive]
    assert world.dynamic == {"min.insync.replicas": "2"}


def test_a_refused_step_does_not_block_a_restart_forever() -> None:
    world = made()
    world.wanted = wanted(image="b", dynamic_config={"log.retention.ms": "0100"})
    world.record = replace(world.record, managed_config=("log.retention.ms",))
    refused = do.SetConfig({"log.retention.ms": "0100"})
    observed = replace(world.observe(), tried=(refused,))
    found = plan(world.record, world.wanted, observed, "x")
    assert [type(step) for step in found.steps] == [do.Restart]


@pytest.mark.parametrize("part", ["quorum", "metadata"])
def test_the_last_controller_hibernates_with_an_old_view_of_the_quorum(part: str) -> None:
    """With its majority gone, the view of the quorum only grows older: a slow machine left one pod for ever."""
    world = made()
    for node_id in (101, 102, 103, 1, 3):
        world.kill(node_id)
    before = made().observe()
    old = replace(getattr(before, part), age_ms=AGE_MAX_MS + 1)
    observed = replace(world.observe(), **{part: old})
    found = plan(world.record, wanted(hibernated=True), observed, "x")
    assert found.steps == [do.Stop(2, "hibernation")]
    assert found.good_ms > 0


# By the reconciler


async def _settled() -> tuple[Any, Any]:
    api = new_api()
    operator = new_operator(api)
    await settle(api, operator)
    await operator.reconcile(KEY)
    api.writes.clear()
    return api, operator


def _plans(monkeypatch: pytest.MonkeyPatch, *plans: Plan) -> None:
    """The planner's plans, one look after the other."""
    monkeypatch.setattr("kraft_operator.apply.fence.LOOKS_S", 0.0)
    left = list(plans)
    monkeypatch.setattr("kraft_operator.reconcile.plan", lambda *_: left.pop(0) if len(left) > 1 else left[0])


def _restart(good_ms: int = 5000) -> Plan:
    return Plan(steps=[do.Restart((101,), "image")], good_ms=good_ms)


def _deletions(api: Any) -> int:
    return sum((verb, kind) == ("delete", "Pod") for verb, kind, _ in api.writes)


def test_a_restart_that_a_second_look_forbids_does_not_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator = await _settled()
        _plans(monkeypatch, _restart(), Plan(blocked=[do.Blocked("PartitionAtRisk", "t-0")]))
        await operator.reconcile(KEY)
        assert not _deletions(api)
        operator.close()

    asyncio.run(main())


def test_a_restart_that_a_second_look_permits_happens_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator = await _settled()
        _plans(monkeypatch, _restart())
        await operator.reconcile(KEY)
        assert _deletions(api) == 1
        operator.close()

    asyncio.run(main())


def test_a_pod_that_has_changed_since_the_second_look_is_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator = await _settled()
        _plans(monkeypatch, _restart())

        def changes(verb: str, kind: str, name: str) -> None:
            if (verb, kind) == ("delete", "Pod"):
                api.objects[kind, KEY.namespace, name]["metadata"]["resourceVersion"] = "later"

        api.before = changes
        await operator.reconcile(KEY)
        assert "deletionTimestamp" not in api.objects["Pod", "demo", "sample-101"]["metadata"]
        operator.close()

    asyncio.run(main())


def test_a_plan_with_old_views_is_not_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator = await _settled()
        _plans(monkeypatch, _restart(good_ms=0))
        with pytest.raises(ApiError, match="too old"):
            await operator.reconcile(KEY)
        assert not _deletions(api)
        operator.close()

    asyncio.run(main())


def test_the_last_read_of_the_resource_counts_against_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server took 10 s to answer, and a controller died during that time: seed 1211 of the simulated passes."""

    async def main() -> None:
        api, operator = await _settled()
        _plans(monkeypatch, _restart())
        read, reads, clock = api.get, itertools.count(1), operator._clock
        late = [0.0]

        async def throttled(kind: str, namespace: str | None, name: str) -> Any:
            if kind == "KRaftCluster" and next(reads) == 2:  # the pass begins with the first read
                late[0] = 10.0
            return await read(kind, namespace, name)

        monkeypatch.setattr(api, "get", throttled)
        monkeypatch.setattr(operator, "_clock", lambda: clock() + late[0])
        with pytest.raises(ApiError, match="too old"):
            await operator.reconcile(KEY)
        assert late == [10.0]
        assert not _deletions(api)
        operator.close()

    asyncio.run(main())


def test_a_resource_paused_during_a_pass_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator = await _settled()

        def planned(*_: Any) -> Plan:
            resource = api.objects["KRaftCluster", *KEY]
            resource["metadata"]["generation"] += 1
            return _restart()

        monkeypatch.setattr("kraft_operator.reconcile.plan", planned)
        await operator.reconcile(KEY)
        assert not _deletions(api)
        operator.close()

    asyncio.run(main())
