"""Whole stories: the planner and the small world, which asserts the laws at every step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.wanted import Pool, ReplacementRequest
from kraft_operator.plan.planner import plan
from tests.unit.operator.outcomes import restarts
from tests.unit.operator.world import CLUSTER, World, made, wanted
from tests.unit.operator.world_objects import Partition


def test_a_new_cluster_is_formatted_and_started_and_then_left_alone() -> None:
    world = World(wanted())
    world.settle()
    assert world.record.cluster_id == CLUSTER
    assert world.record.voters == (1, 2, 3)
    assert sorted(world.pods) == [1, 2, 3, 101, 102, 103]
    assert len(world.actions(do.Format)) == 6
    assert not [step for step in world.done if isinstance(step, do.DISRUPTIVE)]
    world.done.clear()
    assert world.step().steps == []


def test_pods_of_formatted_volumes_do_not_wait_for_the_volumes_of_other_nodes() -> None:
    """A start took a second longer: the record, the marks of other nodes, and the pods were three passes."""
    world = World(wanted())
    while not world.actions(do.Format):
        world.step()
    observed = world.observe()
    kube = observed.kube.value
    assert kube is not None
    volumes = {**kube.volumes, (101, 0): replace(kube.volumes[101, 0], formatted_for=f"{CLUSTER}/101")}
    observed = replace(observed, kube=replace(observed.kube, value=replace(kube, volumes=volumes)))
    planned = plan(world.record, world.wanted, observed, CLUSTER)
    (remember,) = planned.steps
    assert isinstance(remember, do.Remember)
    assert remember.why == "volumes of 101 are formatted"
    planned = plan(remember.record, world.wanted, observed, CLUSTER)
    first, *others = planned.steps
    assert isinstance(first, do.CreatePod)
    assert first.node == 101
    assert [step.node for step in others if isinstance(step, do.MarkFormatted)] == [1, 2, 3, 102, 103]


def test_a_new_image_restarts_followers_then_the_active_controller_then_brokers() -> None:
    world = made()
    leader = world.leader()
    world.wanted = wanted(image="b")
    world.settle()
    assert leader == 1
    assert restarts(world) == [2, 3, 1, 101, 102, 103]


def test_a_bad_image_stops_the_roll_until_it_is_corrected() -> None:
    world = made()
    world.bad_images = {"bad"}
    world.wanted = wanted(image="bad")
    for _ in range(60):
        world.step()
    assert restarts(world) == [2]
    assert any("voter 2: ErrImagePull" in wait for wait in world.last.waits)
    world.wanted = wanted(image="good")
    world.settle()
    assert {pod.aspects["image"] for pod in world.pods.values()} == {"good"}


def test_waits_of_a_roll_are_sentences() -> None:
    world = made()
    world.settle()
    world.wanted = wanted(image="b")
    seen: set[str] = set()
    for _ in range(400):
        seen.update(world.step().waits)
        world.tick()
    assert "no further node restarts: voter 2 has no pod yet" in seen
    assert not any(": is " in wait or ": has " in wait for wait in seen), seen


def test_a_bad_image_from_the_start_recovers_when_corrected() -> None:
    world = World(wanted(image="bad"))
    world.bad_images = {"bad"}
    for _ in range(20):
        world.step()
    assert not world.actions(do.DropJob), "nothing was corrected"
    assert any("voter 1: its volume is being formatted: ErrImagePull" in wait for wait in world.last.waits)
    world.wanted = wanted(image="good")
    world.settle()
    assert len(world.actions(do.DropJob)) == 6, "no volume could be formatted"


def test_a_pool_that_could_not_be_formatted_can_be_removed() -> None:
    world = made()
    world.bad_images = {"bad"}
    more = Pool("more", False, True, 1, 301, {"image": "bad", "config": "c"})
    world.wanted = replace(wanted(), pools=(*wanted().pools, more))
    for _ in range(10):
        world.step()
    world.wanted = wanted()
    world.settle()
    assert 301 in world.record.retired
    assert not world.jobs, "its job would wait for ever"


def test_an_under_replicated_topic_blocks_the_roll_and_is_named() -> None:
    world = made()
    world.partitions["lonely", 0] = replace(
        next(iter(world.partitions.values())), replicas=(101,), isr={101}, min_isr=1
    )
    world.wanted = wanted(image="b")
    for _ in range(120):
        world.step()
    assert 101 not in restarts(world)
    assert {102, 103} <= set(restarts(world))
    assert any("partition lonely-0" in blocked.message for blocked in world.last.blocked)
    world.wanted = wanted(image="b", unavailable_topics=frozenset({"lonely"}))
    world.settle()
    assert 101 in restarts(world)


def test_a_rack_of_brokers_restarts_together_as_far_as_isrs_allow() -> None:
    world = made(brokers=4)
    for number, partition in enumerate(world.partitions.values()):
        partition.replicas = (101, 103, 104) if number % 2 else (102, 103, 104)
        partition.isr = set(partition.replicas)
    world.wanted = wanted(brokers=4, image="b", parallel_by_rack=True)
    racks = {101: "x", 102: "x", 103: "y", 104: "y"}
    observe = world.observe

    def with_racks(rng: object = None) -> object:
        del rng
        seen = observe()
        kube = seen.kube.value
        assert kube is not None
        pods = {i: replace(pod, rack=racks.get(i, "")) for i, pod in kube.pods.items()}
        return replace(seen, kube=replace(seen.kube, value=replace(kube, pods=pods)))

    world.observe = with_racks  # type: ignore[assignment, method-assign]
    world.settle()
    together = [step.nodes for step in world.done if isinstance(step, do.Restart) and step.nodes[0] > 100]
    assert together == [(101, 102), (103,), (104,)]


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 5), (5, 3), (3, 1), (1, 5), (2, 3)])
def test_controllers_grow_and_shrink_by_one_voter_at_a_time(before: int, after: int) -> None:
    world = made(controllers=before)
    world.wanted = wanted(controllers=after)
    world.settle()
    assert world.record.voters == tuple(range(1, after + 1))
    assert {pod.voters for pod in world.pods.values()} == {world.record.voters}
    brokers = [node for node in restarts(world) if node > 100]
    assert brokers == [101, 102, 103], "brokers learn of the voters once, at the end"


def test_ids_are_not_reused() -> None:
    world = made()
    world.wanted = wanted(controllers=1, brokers=3)
    world.settle()
    world.wanted = wanted(controllers=3, brokers=3)
    world.settle()
    assert world.record.voters == (1, 4, 5)
    assert world.record.retired == (2, 3)


def test_brokers_that_leave_are_drained_first() -> None:
    world = made(brokers=5)
    world.make_topics(count=10)
    world.wanted = wanted(brokers=3)
    world.settle()
    assert set(world.registered) == {101, 102, 103}
    assert world.record.retired == (104, 105)
    assert all(set(p.replicas) == {101, 102, 103} for p in world.partitions.values())
    assert (104, 0) in world.volumes, "volumes are kept"


def test_volumes_of_removed_nodes_are_deleted_on_request() -> None:
    world = made(brokers=4)
    pools = wanted(brokers=3).pools
    world.wanted = replace(wanted(), pools=(pools[0], replace(pools[1], delete_volumes=True)))
    world.settle()
    assert not [key for key in world.volumes if key[0] == 104]


def test_the_policy_of_a_removed_pool_decides_about_its_volumes() -> None:
    """Its policy was deleted with the pool, and the volumes stayed."""
    for delete in (True, False):
        world = made()
        more = Pool("more", False, True, 1, 301, {"image": "a", "config": "c"}, delete_volumes=delete)
        world.wanted = replace(wanted(), pools=(*wanted().pools, more))
        world.settle()
        assert (301, 0) in world.volumes
        world.wanted = wanted()
        world.settle()
        assert world.record.retired == (301,)
        assert ((301, 0) in world.volumes) is not delete


def test_a_drain_without_room_names_the_partition() -> None:
    world = made()
    world.wanted = wanted(brokers=2)
    for _ in range(20):
        world.step()
    assert [b.reason for b in world.last.blocked] == ["CannotDrain"]
    assert "partition t-0 has 3 replicas" in world.last.blocked[0].message


def test_a_voter_gets_an_empty_disk_under_its_id() -> None:
    world = made()
    world.lose_host(3)
    for _ in range(10):
        world.step()
    assert any(b.reason == "VolumeLost" and "voter 3" in b.message for b in world.last.blocked)
    assert not world.actions(do.Format), "a lost volume is not formatted anew by itself"
    world.wanted = wanted(replacements=(ReplacementRequest("r", 3, "EmptyDisk"),))
    world.settle()
    assert world.record.voters == (1, 2, 3)
    node = world.record.node(3)
    assert node is not None
    assert node.disk == 1
    assert restarts(world) == []


def test_an_empty_disk_is_refused_while_another_voter_is_down() -> None:
    world = made()
    world.lose_host(3)
    world.lose_host(2)
    world.wanted = wanted(replacements=(ReplacementRequest("r", 3, "EmptyDisk"),))
    for _ in range(20):
        world.step()
    assert not world.record.replacements
    assert any(b.reason == "ReplacementRefused" for b in world.last.blocked)


def test_a_running_voter_gets_another_id() -> None:
    world = made()
    world.wanted = wanted(replacements=(ReplacementRequest("r", 3, "NewId"),))
    world.settle()
    assert world.record.voters == (1, 2, 4)
    assert world.record.retired == (3,)
    assert world.record.replacements[0].done


def test_another_id_for_a_stopped_voter_requires_accepting_the_pause() -> None:
    world = made()
    world.lose_host(3)
    world.wanted = wanted(replacements=(ReplacementRequest("r", 3, "NewId"),))
    for _ in range(20):
        world.step()
    assert any("accept MetadataPause" in b.message for b in world.last.blocked)
    world.wanted = wanted(replacements=(ReplacementRequest("r", 3, "NewId", frozenset({"MetadataPause"})),))
    world.settle()
    assert world.record.voters == (1, 2, 4)
    assert world.record.retired == (3,)


def test_a_broker_gets_an_empty_disk() -> None:
    world = made()
    world.lose_host(102)
    world.wanted = wanted(replacements=(ReplacementRequest("r", 102, "EmptyDisk"),))
    world.settle()
    assert all(p.isr == set(p.replicas) for p in world.partitions.values())
    assert world.record.replacements[0].done


def test_the_last_copy_is_not_given_up_without_acceptance() -> None:
    world = made()
    world.partitions["lonely", 0] = replace(
        next(iter(world.partitions.values())), replicas=(102,), isr={102}, min_isr=1
    )
    world.wanted = wanted(replacements=(ReplacementRequest("r", 102, "EmptyDisk"),))
    for _ in range(10):
        world.step()
    assert any("partition lonely-0" in b.message for b in world.last.blocked)
    assert 102 in world.pods


def test_hibernation_stops_brokers_first_and_waking_brings_all_back() -> None:
    world = made()
    world.wanted = wanted(hibernated=True)
    for _ in range(40):
        world.step()
    stops = [step.node for step in world.done if isinstance(step, do.Stop)]
    assert stops == [101, 102, 103, 2, 3, 1]
    assert not world.pods
    world.wanted = wanted()
    world.settle()
    assert len(world.pods) == 6


def test_combined_nodes_become_controllers_beside_new_brokers() -> None:
    aspects = {"image": "a", "config": "c"}
    both = Pool("both", True, True, 3, 1, aspects)
    world = World(replace(wanted(), pools=(both,)))
    world.settle()
    world.make_topics()
    world.settle()
    world.wanted = replace(wanted(), pools=(replace(both, broker=False), Pool("brokers", False, True, 3, 101, aspects)))
    world.settle()
    assert {i: pod.aspects["roles"] for i, pod in world.pods.items()} == {
        **dict.fromkeys((1, 2, 3), "controller"),
        **dict.fromkeys((101, 102, 103), "broker"),
    }


def test_combined_nodes_become_brokers_beside_new_controllers() -> None:
    aspects = {"image": "a", "config": "c"}
    both = Pool("both", True, True, 3, 1, aspects)
    world = World(replace(wanted(), pools=(both,)))
    world.settle()
    world.make_topics()
    world.settle()
    world.wanted = replace(wanted(), pools=(replace(both, controller=False), Pool("ctl", True, False, 3, 201, aspects)))
    world.settle()
    assert world.record.voters == (201, 202, 203)
    assert {world.pods[i].aspects["roles"] for i in (1, 2, 3)} == {"broker"}


def test_controllers_can_also_become_brokers() -> None:
    """They waited to be unfenced as brokers before the restart that makes them brokers: the roll never began."""
    world = made()
    controllers, brokers = world.wanted.pools
    world.wanted = replace(world.wanted, pools=(replace(controllers, broker=True), brokers))
    world.settle()
    assert restarts(world) == [2, 3, 1]
    assert set(world.registered) == {1, 2, 3, 101, 102, 103}


def test_a_dead_node_of_a_removed_pool_returns_with_the_pool() -> None:
    """Its roles are unknown then; the operator names it, and all other nodes go on."""
    world = made()
    more = Pool("more", False, True, 2, 301, world.wanted.pools[1].aspects)
    world.wanted = replace(world.wanted, pools=(*world.wanted.pools, more), balance="x")
    world.settle()
    everywhere = (101, 102, 103, 301, 302)
    world.partitions["all", 0] = Partition(everywhere, {*everywhere}, 2)
    pools = world.wanted.pools
    world.wanted = wanted(image="b")
    world.step()
    world.kill(301)
    for _ in range(40):
        world.step()
    assert {one.reason for one in world.last.blocked} == {"PoolGone", "CannotDrain"}
    assert 301 not in world.pods
    assert all(world.pods[i].aspects["image"] == "b" for i in (1, 2, 3, 101, 102, 103))
    world.wanted = replace(world.wanted, pools=(*world.wanted.pools, replace(pools[2], replicas=0)))
    for _ in range(10):
        world.step()
    assert world.pods[301].ready


def test_dynamic_values_are_set_and_removed_without_a_restart() -> None:
    world = made()
    world.dynamic["theirs"] = "1"
    world.wanted = wanted(dynamic_config={"log.retention.ms": "5"})
    world.settle()
    assert world.dynamic == {"theirs": "1", "log.retention.ms": "5"}
    world.wanted = wanted()
    world.settle()
    assert world.dynamic == {"theirs": "1"}
    assert restarts(world) == []


def test_a_supervised_roll_waits_for_approval() -> None:
    world = made()
    world.wanted = wanted(image="b", supervised=True, revision="r1")
    for _ in range(10):
        world.step()
    assert restarts(world) == []
    assert isinstance(world.last.pending, do.Restart)
    world.wanted = wanted(image="b", supervised=True, revision="r1", approved="r1")
    world.settle()
    assert len(restarts(world)) == 6


def test_a_roll_by_hand_restarts_once() -> None:
    world = made()
    world.wanted = wanted(rolls={102: "now"})
    world.settle()
    assert restarts(world) == [102]


def test_a_skipped_node_is_left_alone() -> None:
    world = made()
    world.wanted = wanted(image="b", skip=frozenset({2, 102}))
    world.settle()
    assert restarts(world) == [3, 1, 101, 103]


def test_a_paused_cluster_is_only_watched() -> None:
    world = made()
    world.kill(101)
    world.wanted = wanted(image="b", paused=True)
    for _ in range(10):
        world.step()
    assert world.done == []
    assert world.last.blocked[0].reason == "Paused"


def test_a_recreated_resource_adopts_its_volumes() -> None:
    world = made()
    again = World(wanted(), volumes=dict(world.volumes))
    again.settle()
    assert again.actions(do.Format) == []
    assert again.record.cluster_id == CLUSTER


def test_a_foreign_volume_is_left_untouched() -> None:
    world = World(wanted())
    world.step()
    world.volumes[102, 0] = "AAAAAAAAAAAAAAAAAAAAAA/102"
    for _ in range(20):
        world.step()
    assert any(b.reason == "ForeignVolume" and "broker 102" in b.message for b in world.last.blocked)
    assert world.volumes[102, 0] == "AAAAAAAAAAAAAAAAAAAAAA/102"
    assert 102 not in world.pods
